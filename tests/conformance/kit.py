"""Where a kit is aimed at: a base URL and a key, of a service that a test started or of anything else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    """``local_storage`` is the folder of the ``local`` storage provider, when the service has one."""

    url: str
    key: str = ""
    local_storage: Path | None = None
