"""Reads what is left of the host: memory, disk, processes and open files, with the limits of the runner's own
control groups (v1 and v2, this group and all above it).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runner.limits.pressure import Disk, Host

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")
_UNLIMITED: Final = 1 << 60  # v1 says "no limit" with a number near 2^63


class HostReader:
    """Callable; never raises: what cannot be read is None.

    ``own_groups``: sandboxes count in the runner's own control groups, too. Those of an engine do not.
    """

    def __init__(self, data_dir: Path, proc: Path = PROC, cgroups: Path = CGROUPS, *, own_groups: bool = True) -> None:
        self._data_dir, self._proc, self._cgroups = data_dir, proc, cgroups
        kinds = ("memory", "pids")
        self._groups = {kind: tuple(_chain(proc, cgroups, kind)) if own_groups else () for kind in kinds}

    def __call__(self) -> Host:
        """One look."""
        return Host(self._memory(), self.disk(), self._pids(), self._open_files())

    def _memory(self) -> int | None:
        """The least of what the host has available and what each group may still take; file cache counts as free."""
        left = [_field(self._proc / "meminfo", "MemAvailable:", 1024)]
        for group in self._groups["memory"]:
            if (group / "memory.max").exists():
                limit, used = _number(group / "memory.max"), _number(group / "memory.current")
                cache = _field(group / "memory.stat", "inactive_file")
            else:
                limit, used = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
                cache = _field(group / "memory.stat", "total_inactive_file")
            if limit is not None and used is not None:
                left.append(limit - used + (cache or 0))
        return _least(left)

    def _pids(self) -> int | None:
        """Threads count as processes do: the kernel numbers both alike."""
        threads = _threads(self._proc / "loadavg")
        limits = [_number(self._proc / "sys/kernel" / name) for name in ("pid_max", "threads-max")]
        left: list[int | None] = []
        if threads is not None:
            left += [limit - threads for limit in limits if limit is not None]
        for group in self._groups["pids"]:
            limit, used = _number(group / "pids.max"), _number(group / "pids.current")
            if limit is not None and used is not None:
                left.append(limit - used)
        return _least(left)

    def _open_files(self) -> int | None:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            return None if soft == resource.RLIM_INFINITY else soft - len(os.listdir(self._proc / "self/fd"))
        except OSError:
            return None

    def disk(self) -> Disk:
        """Bytes and inodes that the runner may still use; a file system that makes inodes as needed says 0 of 0."""
        try:
            facts = os.statvfs(self._data_dir)
        except OSError:
            return Disk()
        return Disk(facts.f_bavail * facts.f_frsize, facts.f_favail if facts.f_files else None)


def _chain(proc: Path, cgroups: Path, kind: str) -> Iterator[Path]:
    """This process's group of a kind and those above it, as far as they can be seen here."""
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, names, path = line.split(":", 2)
        if number == "0":
            base = cgroups if (cgroups / "cgroup.controllers").exists() else cgroups / "unified"
        elif kind in names.split(","):
            base = cgroups / kind
        else:
            continue
        place = base / path.lstrip("/")
        if not place.is_dir():
            place = base  # the path may be of an outer cgroup namespace
        while True:
            yield place
            if place == base:
                break
            place = place.parent


def _number(path: Path) -> int | None:
    """The number in a file; None for ``max``, for more than anything can have, and where there is none."""
    try:
        value = int(path.read_text())
    except (OSError, ValueError):
        return None
    return value if value < _UNLIMITED else None


def _field(path: Path, name: str, unit: int = 1) -> int | None:
    try:
        for line in path.read_text().splitlines():
            words = line.split()
            if words and words[0] == name:
                return int(words[1]) * unit
    except (OSError, ValueError, IndexError):
        pass
    return None


def _threads(loadavg: Path) -> int | None:
    """All threads of the host: ``0.1 0.2 0.3 running/all last`` (proc(5))."""
    try:
        return int(loadavg.read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return None


def _least(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None
