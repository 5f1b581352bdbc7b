"""Processes below another one, and their memory, from ``/proc``."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def parents() -> dict[int, int]:
    """Every process with its parent."""
    found = {}
    for place in _PROC.iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                found[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def children(pid: int) -> list[int]:
    """Direct children."""
    return [child for child, parent in parents().items() if parent == pid]


def tree(pid: int) -> list[int]:
    """A process and everything below it."""
    below = defaultdict(list)
    for child, parent in parents().items():
        below[parent].append(child)
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += below[found[-1]]
    return found


def pss_kib(pid: int) -> int:
    """Proportional set size: pages shared by n processes count 1/n. Raises OSError."""
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0
