"""Processes below another one, and their memory, from ``/proc``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def children(pid: int) -> list[int]:
    """Direct children, the oldest first."""
    return [child for _, child, parent in sorted(_processes()) if parent == pid]


def tree(pid: int) -> list[int]:
    """A process and everything below it."""
    below = defaultdict(list)
    for _, child, parent in _processes():
        below[parent].append(child)
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += below[found[-1]]
    return found


def anonymous_kib(pid: int) -> int:
    """Memory that no file backs; pages shared by n processes count 1/n. Raises OSError."""
    for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1])
    return 0


def forget_peak(pid: int) -> float:
    """Begin a process's peak resident memory anew (proc(5), clear_refs); gives MiB resident now. Raises OSError."""
    (_PROC / str(pid) / "clear_refs").write_text("5")
    return peak_mib(pid)


def peak_mib(pid: int) -> float:
    """Most resident memory of a process since its start or ``forget_peak``, in MiB. Raises OSError."""
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise LookupError("the kernel does not say VmHWM")


def _processes() -> Iterator[tuple[int, int, int]]:
    """Start time, pid and parent of every process."""
    for place in _PROC.iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                yield int(fields[19]), int(place.name), int(fields[1])
