"""Files below one folder, reached through descriptors: no name leaves it, and no symbolic link is followed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from runner.objects.bucket import Condition, Fault, Found, Missing, check

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DRAFT: Final = ".draft-"


def put(root: Path, key: str, data: memoryview, only: Condition) -> str:
    """Write a file beside its place and move it in, durably; its ETag."""
    with _parent(root, key, make=True) as (folder, name):
        draft = _DRAFT + secrets.token_hex(8)
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            _write(fd, data)
            os.fsync(fd)
            fcntl.flock(folder, fcntl.LOCK_EX)  # of all runners that use this folder; closing it gives it back
            check(_stat(folder, name, key), only)
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
            return _found(key, os.fstat(fd)).etag
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            raise
        finally:
            os.close(fd)


def head(root: Path, key: str) -> Found | None:
    """What is there."""
    try:
        with _parent(root, key) as (folder, name):
            return _stat(folder, name, key)
    except Missing:
        return None


def opened(root: Path, key: str) -> tuple[int, Found]:
    """An open descriptor and what it is of."""
    with _parent(root, key) as (folder, name):
        try:
            fd = os.open(name, _READ, dir_fd=folder)
        except FileNotFoundError:
            raise Missing("there is no such object") from None
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise Fault("something else than a file is there")
        return fd, _found(key, status)


def delete(root: Path, key: str) -> None:
    """Remove a file; a folder is not one."""
    try:
        with _parent(root, key) as (folder, name), contextlib.suppress(FileNotFoundError):
            if _stat(folder, name, key) is not None:
                os.unlink(name, dir_fd=folder)
                os.fsync(folder)
    except Missing:
        return


def listing(root: Path, prefix: str) -> list[Found]:
    """The files below a folder, at any depth. Links and what is not complete are passed over."""
    found: list[Found] = []
    try:
        with _parent(root, f"{prefix.rstrip('/')}/x") as (folder, _):
            for below, _folders, files, fd in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
                head_ = prefix.rstrip("/") + below[1:]
                for name in files:
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode) and not name.startswith(_DRAFT):
                            found.append(_found(f"{head_}/{name}", status))
    except Missing:
        pass
    return found


def guarded(work: Callable[[], object]) -> object:
    """``work()``, with what the system says made a Fault."""
    try:
        return work()
    except OSError as error:
        raise Fault("the folder of the runner cannot do this", os.strerror(error.errno or 0)) from None


@contextlib.contextmanager
def _parent(root: Path, key: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """The folder of a key, opened step by step, and the last name. Raises Missing."""
    *folders, name = key.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in (*folders, name)):
        raise Fault("the key is no name of a file")
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)  # the operator's own name: may be a link
    try:
        for part in folders:
            below = _step(fd, part, make)
            os.close(fd)
            fd = below
        yield fd, name
    finally:
        os.close(fd)


def _step(fd: int, part: str, make: bool) -> int:
    if make:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=fd)
            os.fsync(fd)
    try:
        return os.open(part, _FOLDER, dir_fd=fd)
    except FileNotFoundError:
        raise Missing("there is no such object") from None


def _stat(folder: int, name: str, key: str) -> Found | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Fault("something else than a file is there")
    return _found(key, status)


def _found(key: str, status: os.stat_result) -> Found:
    etag = f'"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"'
    return Found(key, status.st_size, etag, status.st_mtime)


def _write(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data[: 1 << 20]) :]
