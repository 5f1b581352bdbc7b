"""Processes and mounts of one engine, told by its own folder: found, ended, and unmounted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

PROGRAMS = ("dockerd", "containerd", "runc", "runsc")


def parents() -> dict[int, int]:
    """Parent of every process that is no zombie."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX":
                found[int(entry.parent.name)] = int(fields[1])
    return found


def arguments(pid: int) -> list[str]:
    """Arguments of a process; none when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


def belonging(folder: Path) -> set[int]:
    """Parts of an engine whose arguments name its folder, and all that they started."""
    tree = parents()
    found = {
        pid
        for pid in tree
        if (words := arguments(pid))
        and os.path.basename(words[0]).startswith(PROGRAMS)
        and any(str(folder) in word for word in words)
    }
    while more := {child for child, parent in tree.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def end(folder: Path, limit_s: float = 20.0) -> bool:
    """SIGKILL for whatever belongs to an engine, until nothing does; whether there was anything."""
    deadline, any_found = time.monotonic() + limit_s, False
    while pids := belonging(folder):
        any_found = True
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes of an engine do not end: {sorted(pids)}")
        time.sleep(0.05)
    return any_found


def unmount(*folders: Path) -> None:
    """Take away every mount below folders, the innermost first."""
    rows = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [row.split()[4].encode().decode("unicode_escape") for row in rows]
    for point in reversed(points):
        if any(Path(point).is_relative_to(folder) for folder in folders):
            subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)


def remove_groups(name: str) -> None:
    """Take away the control groups of a container that has no process any more, on either version."""
    for pattern in ("docker", "*/docker", "system.slice", "*/system.slice"):
        for group in Path("/sys/fs/cgroup").glob(f"{pattern}/*{name}*"):
            with contextlib.suppress(OSError):
                group.rmdir()
