"""System calls of the local store: objects as files, durable in the right order, all errors through one door.

The order of a durable create, here as in ``disk_writer`` and ``disk_batch``: write the bytes to a staging file,
fsync it, make the folders and fsync the folder above each new one, link the file under its name (which fails if
the name is taken), fsync its folder, remove the staging name. At no point does a name lead to bytes that could
be lost.

Everything here blocks and runs in the store's threads.
"""

from __future__ import annotations

import errno
import heapq
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from runner.errors import StoreFailed, StoreFull
from runner.workspace.base import KeyExists, KeyMissing, ObjectInfo

MAX_OBJECT_BYTES: Final = 256 << 20

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,199})*")
_STAGED = re.compile(r"[0-9]+-[0-9a-f]{16}\.part")
_KNOWN_FOLDERS: Final = 65_536
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
FULL: Final = {errno.ENOSPC, errno.EDQUOT}


@contextmanager
def door(action: str, key: str) -> Iterator[None]:
    """The one place where an ``OSError`` of the store becomes an error of ours."""
    try:
        yield
    except OSError as error:
        raise translate(error, action, key) from error


def translate(error: OSError, action: str, key: str) -> StoreFailed:
    """``StoreFailed`` for any ``OSError``. The text sent names no path of this machine; ``cause`` does."""
    cause = f"{action} {key}: {error!r}"
    if error.errno in FULL:
        return StoreFull(
            "The disk that holds the store is full; nothing was stored. Free space on it and send it again.",
            cause=cause,
        )
    if error.errno == errno.EROFS:
        return StoreFailed("The disk that holds the store is read-only; nothing was stored.", cause=cause)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StoreFailed("The runner has too many open files; send it again later.", cause=cause)
    return StoreFailed(f"The store could not {action} an object; see the runner's log.", cause=cause)


class Disk:
    """Objects below ``root/objects``; files under way in ``root/staging``. Files 0600, folders 0700."""

    def __init__(self, root: str) -> None:
        self.objects = os.path.join(root, "objects")
        self.staging = os.path.join(root, "staging")
        self._durable: set[str] = set()
        self._durable_lock = threading.Lock()

    def path(self, key: str) -> str:
        """Where an object lies. A key that could leave the root is a defect of ours and refused."""
        if not _KEY.fullmatch(key):
            raise StoreFailed("The store was asked for an impossible key.", cause=f"key {key!r}")
        return f"{self.objects}/{key}"

    def begin(self) -> tuple[int, str]:
        """A new staging file, open for writing, and its path."""
        path = f"{self.staging}/{os.getpid()}-{secrets.token_hex(8)}.part"
        return os.open(path, _CREATE, 0o600), path

    def place(self, staged: str, key: str) -> None:
        """Give a staging file, already fsynced, its name. The caller removes the staging name."""
        target = self.path(key)
        with door("write", key):
            self._link(staged, target, key)

    def _link(self, staged: str, target: str, key: str) -> None:
        folder = os.path.dirname(target)
        self.ensure_folder(folder)
        try:
            self.link(staged, target)
        except FileExistsError:
            sync_folder(folder)  # whoever made it may not have come this far yet
            raise KeyExists("The object is already there.", cause=key) from None
        sync_folder(folder)

    def link(self, staged: str | int, target: str) -> None:
        """Give a staging file, or one without a name by its descriptor, its name, which is not durable yet.

        Raises ``OSError``.
        """
        try:
            _link(staged, target)
        except FileNotFoundError:  # the folder was removed since we made it
            self._forget_folders()
            self.ensure_folder(os.path.dirname(target))
            _link(staged, target)

    def ensure_folder(self, folder: str) -> None:
        """Make a folder and those above it, each durable in its parent."""
        if folder in self._durable:
            return
        if folder != self.objects:
            parent = os.path.dirname(folder)
            self.ensure_folder(parent)
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            sync_folder(parent)
        with self._durable_lock:
            if len(self._durable) >= _KNOWN_FOLDERS:
                self._durable.clear()
            self._durable.add(folder)

    def _forget_folders(self) -> None:
        with self._durable_lock:
            self._durable.clear()

    def read(self, key: str) -> bytes:
        """A whole small object."""
        path = self.path(key)
        with door("read", key):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                raise KeyMissing("The store has lost an object that it should hold.", cause=key) from None
            return _read_open(fd, key)

    def read_many(self, keys: list[str]) -> list[bytes | None]:
        """Several; None for one that is missing."""
        return [self._read_if_there(key) for key in keys]

    def _read_if_there(self, key: str) -> bytes | None:
        """Most that is looked for before a commit is not there: that is found out with one call."""
        try:
            fd = os.open(self.path(key), os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise translate(error, "read", key) from error
        return _read_open(fd, key)

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        path = self.path(key)
        with door("look for", key):
            try:
                os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def names(self, prefix: str, after: str, limit: int) -> list[str]:
        """Names directly below a folder."""
        folder = self.path(prefix.rstrip("/"))
        with door("list", prefix):
            try:
                return sorted(name for name in os.listdir(folder) if name > after)[:limit]
            except FileNotFoundError:
                return []

    def keys(self, prefix: str, after: str, limit: int) -> list[str]:
        """Keys below a folder, at any depth."""
        folder = self.path(prefix.rstrip("/"))
        found: list[str] = []
        with door("list", prefix):
            for key in _walk(folder, prefix, after):
                found.append(key)
                if len(found) >= limit:
                    break
        return found

    def infos(self, prefix: str, after: str, limit: int) -> list[ObjectInfo]:
        """Objects directly below a folder, with their sizes and times."""
        folder = self.path(prefix.rstrip("/"))
        found: list[ObjectInfo] = []
        with door("list", prefix):
            try:
                names = heapq.nsmallest(limit, (name for name in os.listdir(folder) if prefix + name > after))
            except FileNotFoundError:
                return []
            for name in names:
                with suppress(FileNotFoundError):
                    info = os.lstat(f"{folder}/{name}")
                    if stat.S_ISREG(info.st_mode):
                        found.append(ObjectInfo(prefix + name, info.st_size, info.st_mtime))
        return found

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove objects in this order and make the removals durable."""
        folders: dict[str, None] = {}
        for key in keys:
            path = self.path(key)
            with door("delete", key), suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(path)
                folders[os.path.dirname(path)] = None
        for folder in folders:
            with door("delete", keys[0]), suppress(FileNotFoundError):
                sync_folder(folder)

    def tidy(self, prefix: str) -> None:
        """Remove empty folders at and below a folder in which nobody writes any more."""
        top = self.path(prefix.rstrip("/"))
        for folder, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):  # not empty
                os.rmdir(folder)

    def sweep(self) -> int:
        """Remove staging files that a killed runner left; returns how many. Only names of our own form."""
        swept = 0
        with os.scandir(self.staging) as entries:
            for entry in entries:
                if _STAGED.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)
                    swept += 1
        return swept


def _link(staged: str | int, target: str) -> None:
    if isinstance(staged, str):
        os.link(staged, target)
    else:  # any descriptor of a folder makes it a linkat, which alone follows the link in /proc
        os.link(f"/proc/self/fd/{staged}", target, src_dir_fd=staged, follow_symlinks=True)


def _walk(folder: str, prefix: str, after: str) -> Iterator[str]:
    """Keys in byte order. A folder sorts as its name with ``/``, since that is what its keys begin with."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in entries]
    except FileNotFoundError:
        return
    for name in sorted(names):
        key = prefix + name
        if not name.endswith("/"):
            if key > after:
                yield key
        elif key > after or after.startswith(key):
            yield from _walk(f"{folder}/{name[:-1]}", key, after)


def _read_open(fd: int, key: str) -> bytes:
    """All of an object that was opened; closes it."""
    with door("read", key):
        try:
            size = os.fstat(fd).st_size
            if size > MAX_OBJECT_BYTES:
                raise StoreFailed("An object of the store is too large to read.", cause=f"{key}: {size} bytes")
            return read_exactly(fd, size, 0)
        finally:
            os.close(fd)


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of ``data``, however often the kernel takes only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def read_exactly(fd: int, size: int, offset: int) -> bytes:
    """``size`` bytes at ``offset``, or ``StoreFailed`` where the file is shorter."""
    parts = []
    while size:
        part = os.pread(fd, size, offset)
        if not part:
            raise StoreFailed("An object of the store is shorter than it should be.", cause=f"{size} bytes missing")
        parts.append(part)
        size -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
