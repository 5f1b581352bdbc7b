"""What a runner notes about a live sandbox before it makes anything, so that the next start can end it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def write(folder: Path, name: str, content: Json) -> Path:
    """Write a record whole or not at all; gives its path. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path, part = folder / f"{name}.json", folder / f"{name}.part"
    part.write_text(json.dumps(content))
    os.replace(part, path)
    return path


def sweep(folder: Path, end: Callable[[str, Json], bool]) -> int:
    """Call ``end(name, content)`` for every record; one it could not end is kept. Gives how many were ended.

    A record that cannot be read says nothing and goes away: what it stood for is found by name elsewhere.
    """
    count = 0
    for path in sorted(folder.glob("*.json")):
        content: Any = None
        with contextlib.suppress(OSError, ValueError):
            content = json.loads(path.read_text())
        if end(path.stem, content if isinstance(content, dict) else {}):
            path.unlink(missing_ok=True)
            count += 1
    for part in folder.glob("*.part"):
        part.unlink(missing_ok=True)
    return count
