"""How this deployment knows its own containers among all that a daemon has: names, labels, and a lasting id."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path
from typing import Final

PREFIX: Final = "foliobox-"
DEPLOYMENT: Final = "foliobox.deployment"
BOOT: Final = "foliobox.boot"
SANDBOX: Final = "foliobox.sandbox"
IMAGE: Final = "foliobox.image"
RUNTIME: Final = "foliobox.runtime"
ORPHAN_AFTER: Final = "foliobox.orphan-after"
_FILE: Final = "deployment-id"


def container_name(sandbox_id: str) -> str:
    """Name of a sandbox's container; the daemon refuses a second one."""
    return f"{PREFIX}{sandbox_id}"


def deployment_id(data: Path) -> str:
    """One for each data folder, made once. Raises OSError.

    A copy of the folder is another deployment: it must not end the containers of the first. The copied file has
    another inode; moving the folder within its file system changes nothing.
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
    with path.open() as file:
        told, inode = file.read(64).strip(), os.fstat(file.fileno()).st_ino
    return hashlib.sha256(f"{told} {inode}".encode()).hexdigest()[:32]
