"""Reads single settings from an environment: sizes, numbers, switches, folders; each error says the accepted form.

Every function raises ConfigurationError with the variable, its value and what may be written instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from runner.errors import ConfigurationError

Env = Mapping[str, str]
_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)", re.IGNORECASE)
MAX_BYTES: Final = 1 << 60
MAX_COUNT: Final = 1_000_000_000
YEAR_S: Final = 31_536_000.0
_INTEGER = re.compile(r"[0-9]{1,15}")
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TRUE, _FALSE = frozenset(("1", "true", "yes", "on")), frozenset(("", "0", "false", "no", "off"))


def text(env: Env, name: str, default: str = "") -> str:
    """The value without space around it; ``default`` when unset or blank."""
    return env.get(name, "").strip() or default


def size(env: Env, name: str, default: int, *, minimum: int = 1, maximum: int = MAX_BYTES) -> int:
    """Bytes, written as a whole number with an optional unit: ``512m``, ``2g``, ``1048576``."""
    raw = text(env, name)
    if not raw:
        return default
    match = _SIZE.fullmatch(raw)
    value = int(match[1]) * _UNITS[match[2].lower()] if match else 0
    if not minimum <= value <= maximum:
        bounds = f"above 0 and at most {maximum}" if minimum == 1 else f"from {minimum} to {maximum}"
        raise _malformed(name, raw, f"a whole number of bytes {bounds}, or one with k, m, g or t, such as 512m")
    return value


def integer(env: Env, name: str, default: int, *, minimum: int = 0, maximum: int = MAX_COUNT) -> int:
    """A whole number, from ``minimum`` to ``maximum``."""
    raw = text(env, name)
    if not raw:
        return default
    if not _INTEGER.fullmatch(raw) or not minimum <= int(raw) <= maximum:
        raise _malformed(name, raw, f"a whole number, at least {minimum} and at most {maximum}")
    return int(raw)


def number(env: Env, name: str, default: float, *, minimum: float = 0.0, maximum: float = YEAR_S) -> float:
    """A decimal number, from ``minimum`` to ``maximum``."""
    raw = text(env, name)
    if not raw:
        return default
    try:
        value = float(raw)
    except ValueError:
        value = float("nan")
    if not minimum <= value <= maximum:
        raise _malformed(name, raw, f"a number, at least {minimum:g} and at most {maximum:.10g}")
    return value


def switch(env: Env, name: str, default: bool = False) -> bool:
    """On or off."""
    raw = env.get(name)
    if raw is None:
        return default
    if raw.strip().lower() in _TRUE:
        return True
    if raw.strip().lower() in _FALSE:
        return False
    raise _malformed(name, raw, "1, true, yes or on, or 0, false, no or off")


def choice(env: Env, name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    raw = text(env, name, default).lower()
    if raw not in allowed:
        raise _malformed(name, raw, f"one of {', '.join(allowed)}")
    return raw


def folder(env: Env, name: str) -> Path | None:
    """An absolute path, or None when unset."""
    raw = text(env, name)
    if not raw:
        return None
    if not raw.startswith("/") or "\0" in raw:
        raise _malformed(name, raw, "an absolute path, such as /var/lib/foliobox")
    return Path(raw)


def data_folder(env: Env, uid: int | None = None) -> Path:
    """Where the service keeps its data: ``SANDBOX_DATA_DIR``, else root's or the user's data folder."""
    if os.geteuid() == 0 if uid is None else uid == 0:
        return folder(env, "SANDBOX_DATA_DIR") or Path("/var/lib/foliobox")
    return folder(env, "SANDBOX_DATA_DIR") or _user_folder(env, "XDG_DATA_HOME", ".local/share")


def cache_folder(env: Env) -> Path:
    """Where built root file systems and downloads lie: ``FOLIOBOX_CACHE_DIR``, else root's or the user's."""
    if os.geteuid() == 0:
        return folder(env, "FOLIOBOX_CACHE_DIR") or Path("/var/cache/foliobox")
    return folder(env, "FOLIOBOX_CACHE_DIR") or _user_folder(env, "XDG_CACHE_HOME", ".cache")


def _user_folder(env: Env, variable: str, fallback: str) -> Path:
    base = env.get(variable, "")
    if base.startswith("/"):  # the XDG specification: a relative value is to be ignored
        return Path(base) / "foliobox"
    home = env.get("HOME", "") or str(Path.home())
    return Path(home) / fallback / "foliobox"


def _malformed(name: str, value: str, accepted: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={value!r} cannot be used; write {accepted}.", setting=name)
