"""Private folders of a sandbox on the host's disk: where they may lie, and how they go away again.

The folder of a sandbox belongs to the runner, and so does the one above it; what hostile code owns begins one
level below. It can therefore not put anything else in the place of what the runner makes and removes.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

PREFIX = "foliobox-unisolated-"
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PROOTS_OWN = Path("/tmp")
_ROUNDS = 20
_PAUSE_S = 0.01


class _Remove(Protocol):
    def __call__(self, path: str, /, *, dir_fd: int) -> None: ...


def planned(place: Path, sandbox_id: str, uid: int | None) -> Path:
    """Where a sandbox's folder will be: in ``place``, or where a uid that is not the runner's can get at it."""
    name = f"{PREFIX}{sandbox_id}-{secrets.token_hex(8)}"
    if uid is None:
        return place / name
    candidates = (place, Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp"))
    return next((folder for folder in candidates if traversable(folder)), place) / name


def traversable(folder: Path) -> bool:
    """Whether everybody may pass through a folder and those above it, and nobody may replace what others put there.

    The folder itself need not exist yet.
    """
    path = Path(os.path.realpath(folder))
    try:
        modes = [above.stat().st_mode for above in path.parents]
        modes += [path.stat().st_mode] if path.exists() else []
    except OSError:
        return False
    return all(mode & stat.S_IXOTH and (not mode & stat.S_IWOTH or mode & stat.S_ISVTX) for mode in modes)


def make(private: Path, names: Sequence[str], uid: int | None) -> None:
    """Make a planned folder, and those in it, which belong to ``uid``. Raises OSError, also when it exists."""
    if not private.parent.exists():
        private.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        private.parent.chmod(0o711)
    private.mkdir(mode=0o700)
    if uid is not None:
        private.chmod(0o711)
    for name in names:
        folder = private / name
        folder.mkdir(mode=0o700)
        if uid is not None:
            os.chown(folder, uid, uid, follow_symlinks=False)


def noted(record: object, sandbox_id: str) -> Path | None:
    """The folder that a record names, if it is one of ours."""
    if not isinstance(record, str) or ".." in (path := Path(record)).parts or not path.is_absolute():
        return None
    return path if path.name.startswith(f"{PREFIX}{sandbox_id}-") else None


def remove_glue(pid: int, uid: int | None) -> None:
    """Remove what a killed proot left in /tmp: 5.1.0 unpacks its loader there, whatever ``PROOT_TMP_DIR`` says.

    Only plain files of the uid it ran as, named for its pid, which no process has any more.
    """
    name = re.compile(rf"prooted-{pid}-[A-Za-z0-9]{{6}}")
    owner = os.geteuid() if uid is None else uid
    with contextlib.suppress(OSError):
        if os.path.exists(f"/proc/{pid}"):
            return
        for path in _PROOTS_OWN.iterdir():
            if name.fullmatch(path.name):
                facts = path.lstat()
                if stat.S_ISREG(facts.st_mode) and facts.st_uid == owner:
                    path.unlink()


def remove_tree(folder: Path) -> bool:
    """Remove a folder that hostile code filled; whether it is gone.

    Names are resolved below descriptors and links never followed. Nothing at or above the folder has its mode
    changed. However deep the tree is, no more than three descriptors are open: folders are moved up first.
    """
    try:
        above = os.open(folder.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    try:
        for again in range(_ROUNDS):
            if again:
                time.sleep(_PAUSE_S)
            with contextlib.suppress(OSError):
                if _removed(folder.name, above):
                    return True
    finally:
        os.close(above)
    return False


def _removed(name: str, above: int) -> bool:
    """One round; raises OSError when something is in the way."""
    try:
        root = os.open(name, os.O_RDONLY | _DIRECTORY, dir_fd=above)
    except FileNotFoundError:
        return True
    except NotADirectoryError:  # also for a link: it goes away itself
        return _gone(os.unlink, name, above)
    try:
        waiting = os.listdir(root)
        while waiting:
            with contextlib.suppress(OSError):
                waiting += _emptied(waiting.pop(), root)
    finally:
        os.close(root)
    return _gone(os.rmdir, name, above)


def _emptied(name: str, root: int) -> list[str]:
    """Remove one entry of the root; the folders in it come to lie in the root instead, under the names given."""
    try:
        handle = os.open(name, os.O_PATH | _DIRECTORY, dir_fd=root)
    except FileNotFoundError:
        return []
    except NotADirectoryError:
        _gone(os.unlink, name, root)
        return []
    try:
        with contextlib.suppress(OSError):
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # the folder that is open, whatever its name means by now
        folder = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)
    moved: list[str] = []
    try:
        for entry in os.listdir(folder):
            with contextlib.suppress(OSError):
                moved += _out(entry, folder, root)
    finally:
        os.close(folder)
    with contextlib.suppress(OSError):
        _gone(os.rmdir, name, root)
    return moved


def _out(entry: str, folder: int, root: int) -> list[str]:
    """Remove a file or link; move a folder up, which needs it to be writable."""
    try:
        handle = os.open(entry, os.O_PATH | _DIRECTORY, dir_fd=folder)
    except NotADirectoryError:
        _gone(os.unlink, entry, folder)
        return []
    try:
        with contextlib.suppress(OSError):
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
    finally:
        os.close(handle)
    name = f".{secrets.token_hex(12)}"
    os.rename(entry, name, src_dir_fd=folder, dst_dir_fd=root)
    return [name]


def _gone(remove: _Remove, name: str, folder: int) -> bool:
    """Remove an entry; that it does not exist is as good."""
    with contextlib.suppress(FileNotFoundError):
        remove(name, dir_fd=folder)
    return True
