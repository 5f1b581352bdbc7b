"""Names of objects: what a request may call one, where it lies below the prefix, and which are archives. Pure.

One rule gives a key its place, for writing and for deleting: a key that begins with the prefix is whole, any other is
put below the prefix. So what was put under a name is what a delete of that name removes.
"""

from __future__ import annotations

import re
from typing import Final

from runner.errors import StorageRejected

DEFAULT_PREFIX: Final = "workspaces"
MAX_KEY_BYTES: Final = 1024  # of S3
ARCHIVES: Final = "workspaces"
COLLECTED: Final = "mineru"
_STEM: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_SUFFIX: Final = ".tgz"
_PREVIOUS: Final = ".previous"


def normal_prefix(prefix: str) -> str:
    """A prefix without the slash at its end; the default one where there is none. Raises StorageRejected."""
    bare = prefix.strip().rstrip("/") or DEFAULT_PREFIX
    check_key(bare)
    return bare


def full_key(prefix: str, key: str) -> str:
    """Where a key lies. ``prefix`` is a normal one. Raises StorageRejected."""
    check_key(key.removesuffix("/") if key.endswith(prefix + "/") else key)
    if key == prefix + "/":
        raise StorageRejected("key outside storage prefix")
    full = key if key.startswith(prefix + "/") else f"{prefix}/{key}"
    check_key(full)
    return full


def check_key(key: str) -> None:
    """Whether this can be the name of an object everywhere, and one object only. Raises StorageRejected."""
    try:
        size = len(key.encode())
    except UnicodeEncodeError:  # half of a surrogate pair
        raise StorageRejected("invalid storage key") from None
    parts = key.split("/")
    if (
        ".." in key
        or "" in parts  # empty, or a slash at either end, or two in a row: stores take these for different names
        or "." in parts
        or size > MAX_KEY_BYTES
        or any(ord(char) < 32 or ord(char) == 127 for char in key)
    ):
        raise StorageRejected("invalid storage key")


def is_stem(text: str) -> bool:
    """Whether this can be an ``archive_key``."""
    return _STEM.fullmatch(text) is not None


def archive_key(prefix: str, stem: str) -> str:
    """Where the archive of a stem lies. Raises StorageRejected for what is no stem."""
    if not is_stem(stem):
        raise StorageRejected("invalid storage key")
    return f"{prefix}/{ARCHIVES}/{stem}{_SUFFIX}"


def previous_key(prefix: str, stem: str) -> str:
    """Where the archive lies that was there before; no stem has a dot, so it is nobody's archive."""
    return archive_key(prefix, stem).removesuffix(_SUFFIX) + _PREVIOUS + _SUFFIX


def collected(prefix: str, key: str) -> tuple[bool, str | None]:
    """Whether a key is of those that are collected by age; and the stem, where it is an archive."""
    if key.startswith(f"{prefix}/{COLLECTED}/"):
        return True, None
    name = key.removeprefix(f"{prefix}/{ARCHIVES}/")
    if name == key or "/" in name or not name.endswith(_SUFFIX):
        return False, None
    return True, name.removesuffix(_SUFFIX).removesuffix(_PREVIOUS)
