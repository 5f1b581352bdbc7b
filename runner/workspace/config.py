"""Settings of the workspace layer: where the store lies and how much a conversation may keep."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runner.errors import ConfigurationError

DATA_DIR: Final = "SANDBOX_DATA_DIR"
MAX_UPLOAD: Final = "SANDBOX_MAX_UPLOAD_BYTES"
WORKSPACE_SIZE: Final = "SANDBOX_WORKSPACE_SIZE"
WORKSPACE_FILES: Final = "SANDBOX_WORKSPACE_FILES"

MIB: Final = 1 << 20

_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)(?:i?b)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE_FORM: Final = "a whole number of bytes above 0, or one with k, m or g, such as 512m"


@dataclass(frozen=True, slots=True)
class WorkspaceConfig:
    """Sizes in bytes. ``max_files`` counts files, links and empty folders together.

    ``max_upload_bytes`` defaults to what ``/v1`` takes; the sessions surface keeps its contract's default.
    """

    data_dir: Path
    max_upload_bytes: int = 256 * MIB
    workspace_bytes: int = 512 * MIB
    max_files: int = 20_000

    @classmethod
    def from_env(cls, env: Mapping[str, str], *, uid: int | None = None) -> WorkspaceConfig:
        """Read from an environment; ``uid`` (default: this process's) decides where data lies by default.

        Raises ``ConfigurationError`` naming the variable, its value and the accepted form.
        """
        return cls(
            data_dir=_data_dir(env, os.geteuid() if uid is None else uid),
            max_upload_bytes=_size(env, MAX_UPLOAD, 256 * MIB),
            workspace_bytes=_size(env, WORKSPACE_SIZE, 512 * MIB),
            max_files=_count(env, WORKSPACE_FILES, 20_000),
        )


def parse_size(text: str) -> int | None:
    """Bytes meant by ``512m``, ``2g`` or ``1048576``; None when it is no size above zero."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    return int(match[1]) * _UNITS[match[2].lower()] or None


def _data_dir(env: Mapping[str, str], uid: int) -> Path:
    given = env.get(DATA_DIR, "")
    if given:
        if not given.startswith("/") or "\0" in given:
            raise _malformed(DATA_DIR, given, "an absolute path, such as /var/lib/foliobox")
        return Path(given)
    if uid == 0:
        return Path("/var/lib/foliobox")
    share = env.get("XDG_DATA_HOME", "")
    if share.startswith("/"):  # the XDG specification: a relative value is to be ignored
        return Path(share) / "foliobox"
    home = env.get("HOME", "") or os.path.expanduser("~")
    if not home.startswith("/"):
        raise ConfigurationError(f"{DATA_DIR} is not set and there is no home folder; set it to an absolute path.")
    return Path(home) / ".local" / "share" / "foliobox"


def _size(env: Mapping[str, str], name: str, default: int) -> int:
    given = env.get(name, "")
    if not given:
        return default
    size = parse_size(given)
    if size is None:
        raise _malformed(name, given, _SIZE_FORM)
    return size


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    given = env.get(name, "")
    if not given:
        return default
    if not re.fullmatch(r"[0-9]{1,9}", given) or int(given) == 0:
        raise _malformed(name, given, "a whole number above 0, such as 20000")
    return int(given)


def _malformed(name: str, value: str, accepted: str) -> ConfigurationError:
    return ConfigurationError(f"{name}={value!r} cannot be used; write {accepted}.", setting=name)
