"""Reads single settings from the environment: sizes, durations, switches; each error says the accepted form."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from runner.errors import ConfigurationError

Env = Mapping[str, str]
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TRUE, _FALSE = frozenset(("1", "true", "yes", "on")), frozenset(("", "0", "false", "no", "off"))


def size(env: Env, name: str, default: int) -> int:
    """Bytes, written as a number with an optional unit: ``512m``, ``2g``, ``1048576``."""
    raw = env.get(name, "").strip()
    if not raw:
        return default
    match = _SIZE.fullmatch(raw)
    if match is None:
        raise ConfigurationError(f"{name}={raw!r} is not a size; write bytes or a number with k, m or g, like 512m")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def integer(env: Env, name: str, default: int, *, minimum: int = 0) -> int:
    """A whole number, at least ``minimum``."""
    raw = env.get(name, "").strip()
    if not raw:
        return default
    try:
        value = int(raw)
    except ValueError:
        raise ConfigurationError(f"{name}={raw!r} is not a whole number") from None
    if value < minimum:
        raise ConfigurationError(f"{name}={value} is too small; the least is {minimum}")
    return value


def number(env: Env, name: str, default: float, *, minimum: float = 0.0) -> float:
    """A decimal number, at least ``minimum``."""
    raw = env.get(name, "").strip()
    if not raw:
        return default
    try:
        value = float(raw)
    except ValueError:
        raise ConfigurationError(f"{name}={raw!r} is not a number") from None
    if not minimum <= value < float("inf"):
        raise ConfigurationError(f"{name}={raw} is out of range; the least is {minimum}")
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
    raise ConfigurationError(f"{name}={raw!r} is neither on (1, true, yes, on) nor off (0, false, no, off)")


def choice(env: Env, name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of a few words."""
    raw = env.get(name, "").strip().lower() or default
    if raw not in allowed:
        raise ConfigurationError(f"{name}={raw!r} is not known; choose one of {', '.join(allowed)}")
    return raw


def data_folder(env: Env) -> Path:
    """Where the service keeps its data: ``SANDBOX_DATA_DIR``, else root's or the user's data folder."""
    if raw := env.get("SANDBOX_DATA_DIR", "").strip():
        return Path(raw).absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/foliobox")
    base = env.get("XDG_DATA_HOME", "").strip() or str(Path.home() / ".local" / "share")
    return Path(base) / "foliobox"


def cache_folder(env: Env) -> Path:
    """Where built root file systems and downloads lie: ``FOLIOBOX_CACHE_DIR``, else root's or the user's."""
    if raw := env.get("FOLIOBOX_CACHE_DIR", "").strip():
        return Path(raw).absolute()
    if os.geteuid() == 0:
        return Path("/var/cache/foliobox")
    base = env.get("XDG_CACHE_HOME", "").strip() or str(Path.home() / ".cache")
    return Path(base) / "foliobox"
