"""What ``auto`` chose before in this deployment, so that it never gives up isolation without the operator's word."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from runner.backends.base import BackendReport
from runner.errors import ConfigurationError

_FILE: Final = "isolation.json"
_WORDS: Final = ("no isolation", "isolation with walls missing", "the host's kernel", "a kernel of its own")


def strength(report: BackendReport) -> int:
    """3 a kernel of its own, 2 the host's kernel behind all walls, 1 with walls missing, 0 none."""
    if report.isolation == "none":
        return 0
    if report.loopback_only:
        return 1
    return 3 if report.isolation == "separate-kernel" else 2


class Choice:
    """The record in the data folder."""

    def __init__(self, data: Path) -> None:
        self._path = data / _FILE

    def settle(self, report: BackendReport) -> None:
        """Record what was chosen by ``auto``. Raises ConfigurationError when that is weaker than before."""
        self.check(report)
        if strength(report) > self._read():
            self._write(report)

    def check(self, report: BackendReport) -> None:
        """Raises ConfigurationError when what was chosen now is weaker than before."""
        before, now = self._read(), strength(report)
        if now < before:
            raise ConfigurationError(
                f"auto would give sandboxes {_WORDS[now]} ({report.name}{_of(report.runtime)}), and before it gave "
                f"them {_WORDS[before]}: see `foliobox doctor` for what is missing, or name what you want with "
                "SANDBOX_BACKEND and SANDBOX_RUNTIME",
                cause=report.detail,
            )

    def _read(self) -> int:
        """-1 where nothing was chosen yet, or the record says nothing that can be used."""
        try:
            told = json.loads(self._path.read_text())["strength"]
        except (OSError, ValueError, KeyError, TypeError):
            return -1
        return told if type(told) is int and 0 <= told < len(_WORDS) else -1

    def _write(self, report: BackendReport) -> None:
        record = {
            "backend": report.name,
            "runtime": report.runtime,
            "isolation": report.isolation,
            "strength": strength(report),
        }
        part = self._path.with_suffix(".part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part.write_text(json.dumps(record) + "\n")
            os.replace(part, self._path)
        except OSError as error:
            raise ConfigurationError(f"SANDBOX_DATA_DIR: {self._path} cannot be written ({error.strerror})") from error


def _of(runtime: str) -> str:
    return f" with {runtime}" if runtime else ""
