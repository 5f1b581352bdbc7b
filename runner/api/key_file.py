"""The file of keys: read strictly, refused where others could change it, replaced in one step.

    {"keys": [{"name": "gateway", "sha256": "<64 hex digits>", "tenant": "acme",
               "scopes": ["read", "write", "run"], "limits": {"requests_per_minute": 600},
               "expires_at": "2027-01-31T00:00:00Z", "created_at": "2026-11-30T12:00:00Z"}]}

``name``, ``sha256`` and ``tenant`` are required; ``scopes`` are read, write and run where none are given. No message
repeats a value: somebody may have put the key where its hash belongs.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from runner.api import scopes
from runner.api.keys import NAME, RESERVED_TENANTS, Key, KeyLimits
from runner.errors import ConfigurationError

SETTING: Final = "SANDBOX_API_KEYS_FILE"
MAX_BYTES: Final = 4 << 20
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_KNOWN: Final = ("name", "sha256", "tenant", "scopes", "limits", "expires_at", "created_at")
_LIMITS: Final = tuple(item.name for item in fields(KeyLimits))
_MAX_LIMIT: Final = 1 << 50


class Wrong(ValueError):
    """What is wrong, and where; the text follows the name of the file."""


def read(path: Path) -> tuple[tuple[Key, ...], os.stat_result]:
    """The keys and the state of the file they were read from. Raises ConfigurationError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _refused(path, f"it cannot be opened ({error.strerror}): make one with `foliobox keys new`") from error
    try:
        state = os.fstat(fd)
        problem = exposed(state, path)
        if problem:
            raise _refused(path, problem)
        with os.fdopen(fd, "rb", closefd=False) as file:
            return parse(file.read(MAX_BYTES + 1)), state
    except Wrong as error:
        raise _refused(path, str(error)) from None
    except OSError as error:
        raise _refused(path, f"it cannot be read ({error.strerror})") from error
    finally:
        os.close(fd)


def exposed(state: os.stat_result, path: Path) -> str:
    """Why others could have put a key into this file; "" when they could not."""
    if not stat.S_ISREG(state.st_mode):
        return "it is no regular file"
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others may write to it, and so make keys: chmod 600"
    if state.st_uid not in (0, os.geteuid()):
        return "it belongs to another user, who may make keys: chown it to the runner's user or root"
    folder = os.stat(path.parent)
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        return "everybody may write to its folder, and so replace it: chmod o-w the folder"
    return ""


def parse(raw: bytes) -> tuple[Key, ...]:
    """The keys of a document. Raises Wrong, whose text names entry and field."""
    if len(raw) > MAX_BYTES:
        raise Wrong(f"it is longer than {MAX_BYTES >> 20} MiB")
    try:
        document = json.loads(raw.decode("utf-8"), object_pairs_hook=_no_twins)
    except Wrong:
        raise
    except RecursionError:
        raise Wrong("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise Wrong("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Wrong(f"it is not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except ValueError:
        raise Wrong("it holds a number that is too long") from None
    if not isinstance(document, dict) or set(document) != {"keys"} or not isinstance(document["keys"], list):
        raise Wrong('it must be {"keys": [...]} and nothing else')
    keys = tuple(_entry(number, item) for number, item in enumerate(document["keys"]))
    _unique("name", [key.name for key in keys])
    _unique("sha256", [key.sha256 for key in keys])
    return keys


def render(keys: Sequence[Key]) -> bytes:
    """The document that ``parse`` reads."""
    entries = []
    for key in keys:
        entry: dict[str, Any] = {"name": key.name, "sha256": key.sha256, "tenant": key.tenant}
        entry["scopes"] = [scope for scope in scopes.SCOPES if scope in key.scopes]
        limits = {name: getattr(key.limits, name) for name in _LIMITS}
        entry["limits"] = {name: limit for name, limit in limits.items() if limit is not None}
        entry["expires_at"], entry["created_at"] = _time_text(key.expires_at), _time_text(key.created_at)
        entries.append(entry)
    return json.dumps({"keys": entries}, indent=2).encode() + b"\n"


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Wrong("an object names one field twice")
    return found


def _unique(field: str, values: list[str]) -> None:
    first: dict[str, int] = {}
    for number, value in enumerate(values):
        if value in first:
            raise Wrong(f"keys[{number}].{field} is that of keys[{first[value]}] too")
        first[value] = number


def _entry(number: int, item: Any) -> Key:
    place = f"keys[{number}]"
    if not isinstance(item, dict):
        raise Wrong(f"{place} must be an object")
    for name in item:
        if name not in _KNOWN:
            raise Wrong(f"{place} has an unknown field; there are {', '.join(_KNOWN)}")
    for name in ("name", "sha256", "tenant"):
        if name not in item:
            raise Wrong(f"{place}.{name} is missing")
    tenant = _text(f"{place}.tenant", item["tenant"], NAME.fullmatch, "1 to 64 of A-Za-z0-9._-")
    if tenant in RESERVED_TENANTS:
        raise Wrong(f"{place}.tenant is a name that the runner keeps for itself")
    return Key(
        name=_text(f"{place}.name", item["name"], NAME.fullmatch, "1 to 64 of A-Za-z0-9._-"),
        sha256=_text(f"{place}.sha256", item["sha256"], _SHA256.fullmatch, "64 lower-case hex digits, not the key"),
        tenant=tenant,
        scopes=_scopes(f"{place}.scopes", item.get("scopes")),
        limits=_limits(f"{place}.limits", item.get("limits")),
        expires_at=_time(f"{place}.expires_at", item.get("expires_at")),
        created_at=_time(f"{place}.created_at", item.get("created_at")),
    )


def _text(place: str, value: Any, fits: Callable[[str], object], form: str) -> str:
    if not isinstance(value, str) or not fits(value):
        raise Wrong(f"{place} must be {form}")
    return value


def _scopes(place: str, value: Any) -> frozenset[str]:
    if value is None:
        return scopes.DEFAULT
    known = f"one or more of {', '.join(scopes.SCOPES)}, each once"
    if not isinstance(value, list) or not value or any(scope not in scopes.SCOPES for scope in value):
        raise Wrong(f"{place} must be a list of {known}")
    if len(set(value)) != len(value):
        raise Wrong(f"{place} must be a list of {known}")
    return frozenset(value)


def _limits(place: str, value: Any) -> KeyLimits:
    if value is None:
        return KeyLimits()
    if not isinstance(value, dict):
        raise Wrong(f"{place} must be an object")
    for name, limit in value.items():
        if name not in _LIMITS:
            raise Wrong(f"{place} has an unknown field; there are {', '.join(_LIMITS)}")
        if limit is not None and (type(limit) is not int or not 1 <= limit <= _MAX_LIMIT):
            raise Wrong(f"{place}.{name} must be a whole number, at least 1")
    return KeyLimits(**value)


def _time(place: str, value: Any) -> datetime | None:
    if value is None:
        return None
    form = "a time with its offset from UTC, such as 2027-01-31T00:00:00Z"
    try:
        found = datetime.fromisoformat(_text(place, value, lambda text: "T" in text, form))
        if found.tzinfo is None:
            raise ValueError
        return found.astimezone(UTC)
    except Wrong:
        raise
    except (ValueError, OverflowError):
        raise Wrong(f"{place} must be {form}") from None


def _time_text(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _refused(path: Path, problem: str) -> ConfigurationError:
    return ConfigurationError(f"the file of keys {path} ({SETTING}) cannot be used: {problem}")
