"""Workspace paths and ids: what a client may call a file, and what a sandbox's agent may report.

A canonical path is relative to the workspace, has ``/`` between its segments and nothing to resolve:
``outputs/report.pdf``. Names are otherwise kept byte for byte, in any script and in any normalisation form.
Pure functions; nothing here touches a disk.
"""

from __future__ import annotations

import re
from typing import Final

from runner.errors import InvalidPath, InvalidRequest, ProtocolError

MAX_PATH_BYTES: Final = 1024
MAX_SEGMENT_BYTES: Final = 255
MAX_LEVELS: Final = 64
MAX_TARGET_BYTES: Final = 4095

ROOTS: Final = ("workspace", "work")
STANDING_FOLDERS: Final = frozenset(("uploads", "downloads", "skills", "outputs"))  # every workspace has them

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RAW_LIMIT: Final = 8 * MAX_PATH_BYTES


def normalise(path: str) -> str:
    """The canonical form of a path that a client gave.

    ``outputs/x``, ``./outputs/x``, ``/workspace/outputs/x`` and ``/work/outputs/x`` are one file. Raises
    ``InvalidPath``, whose text says what to change.
    """
    if not path:
        raise InvalidPath("The path is empty; name a file, such as outputs/report.pdf.")
    if len(path) > _RAW_LIMIT:
        raise InvalidPath(f"The path is longer than {MAX_PATH_BYTES} bytes; shorten it.", limit=MAX_PATH_BYTES)
    segments = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/"):
        if not segments or segments[0] not in ROOTS:
            raise InvalidPath(
                f"{shown(path)} lies outside the workspace; use a path relative to it, or one below "
                "/workspace/ or /work/."
            )
        segments = segments[1:]
    if not segments:
        raise InvalidPath(f"{shown(path)} names the workspace itself; add the name of a file.")
    if path.endswith(("/", "/.")):
        raise InvalidPath(f"{shown(path)} names a folder; leave out the slash at the end to name a file.")
    problem = _problem(segments)
    if problem:
        raise InvalidPath(f"{shown(path)}: {problem}")
    return "/".join(segments)


def normalise_prefix(prefix: str) -> str:
    """A folder to list below, in canonical form with ``/`` at its end; ``""`` for the whole workspace."""
    if prefix in ("", ".", "/", "./") or prefix.rstrip("/") in ("/workspace", "/work"):
        return ""
    return normalise(prefix.rstrip("/")) + "/"


def is_canonical(path: str) -> bool:
    """Whether ``path`` is exactly what ``normalise`` would return for it, and relative as it stands."""
    if not path or len(path) > MAX_PATH_BYTES:
        return False
    segments = path.split("/")
    return "" not in segments and "." not in segments and _problem(segments) is None


def check_reported(path: object) -> str:
    """A path that came out of a sandbox: untrusted, and canonical or the agent broke its protocol."""
    if isinstance(path, str) and is_canonical(path):
        return path
    raise ProtocolError(
        "The sandbox reported a file name that the workspace cannot hold.",
        cause=f"path from the agent is not canonical: {shown(path)}",
    )


def check_target(target: object) -> str:
    """The target of a symbolic link that came out of a sandbox. Never followed outside a sandbox."""
    if isinstance(target, str) and target and "\0" not in target:
        size = _size(target)
        if size is not None and size <= MAX_TARGET_BYTES:
            return target
    raise ProtocolError(
        "The sandbox reported a symbolic link that the workspace cannot hold.",
        cause=f"link target from the agent is not usable: {shown(target)}",
    )


def check_conversation_id(identifier: str) -> str:
    """``identifier`` when it may name a conversation, else ``InvalidRequest``."""
    if _ID.fullmatch(identifier):
        return identifier
    raise InvalidRequest(
        f"{shown(identifier)} cannot be a conversation id; use 1 to 128 of A-Z a-z 0-9 . _ - and begin "
        "with a letter or a digit."
    )


def check_record_name(name: str) -> str:
    """The kind or id of a record; the same characters as a conversation id."""
    if _ID.fullmatch(name):
        return name
    raise InvalidRequest(f"{shown(name)} cannot name a record; use 1 to 128 of A-Z a-z 0-9 . _ -.")


def is_record_name(name: str) -> bool:
    """Whether ``name`` has the form that ``check_record_name`` wants."""
    return _ID.fullmatch(name) is not None


def check_tenant(tenant: str) -> str:
    """``tenant`` when it may name a tenant, else ``InvalidRequest``."""
    if _TENANT.fullmatch(tenant):
        return tenant
    raise InvalidRequest(f"{shown(tenant)} cannot name a tenant; use 1 to 64 of A-Z a-z 0-9 . _ -.")


def parents(path: str) -> list[str]:
    """The folders above a canonical path, outermost first."""
    found = []
    cut = path.find("/")
    while cut != -1:
        found.append(path[:cut])
        cut = path.find("/", cut + 1)
    return found


def shown(value: object) -> str:
    """A value for a message: escaped and cut, so that a hostile name cannot spoil a log or a terminal."""
    text = ascii(value)
    return text if len(text) <= 120 else f"{text[:100]}…({len(text)} characters)"


def _problem(segments: list[str]) -> str | None:
    """What is wrong with the segments of a path, or None."""
    if ".." in segments:
        return "a path must not contain '..'; write it out from the top of the workspace."
    if len(segments) > MAX_LEVELS:
        return f"more than {MAX_LEVELS - 1} folders deep; use fewer levels."
    total = len(segments) - 1
    for segment in segments:
        if "\0" in segment:
            return "a path must not contain a NUL character; remove it."
        size = _size(segment)
        if size is None:
            return "the name is not valid Unicode (it holds half of a surrogate pair); send it as UTF-8."
        if size > MAX_SEGMENT_BYTES:
            return f"one name is {size} bytes in UTF-8; the limit is {MAX_SEGMENT_BYTES}, shorten it."
        total += size
    if total > MAX_PATH_BYTES:
        return f"the path is {total} bytes in UTF-8; the limit is {MAX_PATH_BYTES}, shorten it."
    return None


def name_bytes(text: str) -> int:
    """Length in UTF-8 of a path or a link's target that was checked."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _size(text: str) -> int | None:
    """Length in UTF-8, or None where the text cannot be written in UTF-8."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None
