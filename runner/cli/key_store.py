"""Changes to a file of keys: one at a time, each in one step, so that a running service never reads half a file."""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from runner.api import key_file
from runner.api.keys import Key
from runner.errors import ConfigurationError


def add(path: Path, key: Key) -> None:
    """Append a key; the file is made if there is none, and so is its folder.

    Raises ConfigurationError, also for a name that is taken.
    """
    try:
        path.resolve().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:
        raise ConfigurationError(f"the folder of {path} cannot be made ({error})") from error
    with _changing(path) as (real, keys, before):
        if any(known.name == key.name for known in keys):
            raise ConfigurationError(f"there is a key {key.name} already: choose another name, or revoke it first")
        _replace(real, [*keys, key], before)


def remove(path: Path, name: str) -> None:
    """Take a key out. Raises ConfigurationError where there is none of this name."""
    with _changing(path) as (real, keys, before):
        if before is None:
            raise ConfigurationError(f"{path} does not exist")
        if all(key.name != name for key in keys):
            raise ConfigurationError(f"there is no key {name!r}: see `foliobox keys list`")
        _replace(real, [key for key in keys if key.name != name], before)


@contextmanager
def _changing(path: Path) -> Iterator[tuple[Path, Sequence[Key], os.stat_result | None]]:
    """The real file, its keys and its state, while nobody else changes it: its folder is locked."""
    try:
        real = path.resolve()
        folder = os.open(real.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, RuntimeError) as error:
        raise ConfigurationError(f"the folder of {path} cannot be opened: make it first") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if real.exists():
            yield real, *key_file.read(real)
        else:
            yield real, (), None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be changed ({error.strerror})") from error
    finally:
        os.close(folder)


def _replace(path: Path, keys: Sequence[Key], before: os.stat_result | None) -> None:
    """A new file takes the place of the old one and belongs to whom that belonged, or its service could not read it."""
    part = path.parent / f".{path.name}.{secrets.token_hex(8)}.part"
    mode = 0o600 if before is None else 0o600 | stat.S_IMODE(before.st_mode) & 0o040
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            if before is not None and (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(fd, before.st_uid, before.st_gid)
            os.fchmod(fd, mode)
            file.write(key_file.render(keys))
            file.flush()
            os.fsync(fd)
        os.rename(part, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
