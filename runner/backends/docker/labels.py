"""How this deployment knows its own containers among all that a daemon has: names, labels, and a lasting id."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PREFIX: Final = "foliobox-"
DEPLOYMENT: Final = "foliobox.deployment"
BOOT: Final = "foliobox.boot"
SANDBOX: Final = "foliobox.sandbox"
IMAGE: Final = "foliobox.image"
RUNTIME: Final = "foliobox.runtime"
ORPHAN_AFTER: Final = "foliobox.orphan-after"
EGRESS: Final = "foliobox.egress"  # network and proxy of a container that has network
_FILE: Final = "deployment-id"


def container_name(sandbox_id: str) -> str:
    """Name of a sandbox's container; the daemon refuses a second one."""
    return f"{PREFIX}{sandbox_id}"


def deployment_id(data: Path) -> str:
    """One for each data folder, made once. Raises OSError.

    A copy of the folder is another deployment: it must not end the containers of the first. A copied folder has
    another inode, also where its files are links to the first one's, and the copied file has one where the folder is
    the root of its disk. Moving the folder within its file system changes nothing, and neither does a restart of the
    machine: numbers of devices change then, so that they do not count, and a snapshot of a whole file system is the
    same deployment until the file in it is removed.
    """
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = data / _FILE
    if not path.exists():
        part = data / f".{_FILE}-{secrets.token_hex(4)}"
        part.write_text(secrets.token_hex(16) + "\n")
        try:
            with contextlib.suppress(FileExistsError):
                os.link(part, path)
        finally:
            part.unlink()
    told = path.read_text()[:64].strip()
    return hashlib.sha256(f"{told} {data.stat().st_ino} {path.stat().st_ino}".encode()).hexdigest()[:32]


def goes_on(told: Mapping[str, str], runtime: str, content: str, egress: str) -> bool:
    """Whether a container is what would be started now: behind the same wall, with the same image in it, and without
    network or with the one (``egress``) that is granted now.
    """
    same = (told.get(RUNTIME), told.get(IMAGE)) == (runtime, content)
    return bool(content) and same and told.get(EGRESS, "") in ("", egress)
