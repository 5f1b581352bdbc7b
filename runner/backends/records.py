"""What a runner notes about a live sandbox before it makes anything, so that the next start can end it.

A record belongs to the folder it was written in and to the process that wrote it. A copy of the folder has records of
sandboxes that are not its own: those are forgotten and nothing is ended. A folder that was moved stays the same one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
HOME, OWNER = "home", "owner"


def write(folder: Path, name: str, content: Json) -> Path:
    """Write a record whole or not at all; gives its path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path, part = folder / f"{name}.json", folder / f"{name}.part"
    owner = {"pid": os.getpid(), "born": born(os.getpid())}
    part.write_text(json.dumps(content | {HOME: _identity(folder), OWNER: owner}))
    os.replace(part, path)
    return path


def sweep(folder: Path, end: Callable[[str, Json], bool]) -> int:
    """Call ``end(name, content)`` for every record of this folder; gives how many were ended.

    One that could not be ended is kept, and so is one whose runner lives. Records of another folder, and those that
    do not say of which they are, go away and nothing else: their sandboxes may be another runner's.
    """
    count = 0
    for path in sorted(folder.glob("*.json")):
        content = _read(path)
        if content.get(HOME) != _identity(folder):
            path.unlink(missing_ok=True)
        elif not _owned_elsewhere(content) and end(path.stem, content):
            path.unlink(missing_ok=True)
            count += 1
    for part in folder.glob("*.part"):
        part.unlink(missing_ok=True)
    return count


def born(pid: int) -> str:
    """The boot and the tick in it at which a process began; becoming another program does not change them.

    Raises OSError, also for one that has ended and waits for its parent.
    """
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] in "ZX":
        raise ProcessLookupError(f"process {pid} has ended")
    return f"{boot} {fields[19]}"


def _read(path: Path) -> Json:
    content: Any = None
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(path.read_text())
    return content if isinstance(content, dict) else {}


def _identity(folder: Path) -> Json:
    """What a copy of a folder does not have, and neither a move within a file system nor a restart of the machine
    changes: the number of its device is another one then. What a snapshot says is held against ``owner``.
    """
    return {"inode": folder.stat().st_ino}


def _owned_elsewhere(content: Json) -> bool:
    """Whether the runner that wrote a record lives and is not this one."""
    owner = content.get(OWNER)
    if not isinstance(owner, dict) or type(pid := owner.get("pid")) is not int or pid == os.getpid():
        return False
    with contextlib.suppress(OSError):
        return bool(born(pid) == owner.get("born"))
    return False
