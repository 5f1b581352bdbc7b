"""Facts of the machine that numbers mean nothing without."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("fastapi", "starlette", "pydantic", "uvicorn", "uvloop", "httptools", "jupyter-client", "ipykernel")


def gather() -> dict[str, Any]:
    """Now, on this machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "cpu": _cpu(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", ""),
        "python": platform.python_version(),
        "bubblewrap": _bubblewrap(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "load_average": load(),
    }


def load() -> list[float]:
    """Load average over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _bubblewrap() -> str | None:
    try:
        done = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
