"""Small file systems in memory, to be filled; mounting them needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(place: Path, options: str) -> Iterator[Path]:
    """A tmpfs mounted at ``place``, which is made; ``options`` are those of tmpfs(5), such as ``size=8m``."""
    if os.geteuid() != 0:
        pytest.skip("needs root: mounts a file system")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
