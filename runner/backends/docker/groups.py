"""Finds a container's control group among the host's files, by the container's id; nothing where they are not seen.

Where groups lie is up to the daemon (``docker/<id>``, ``system.slice/docker-<id>.scope``, or below a parent that an
operator named), so it is learnt once from a container whose process can be seen, and is the same for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.backends.counters import Counters

ROOT = Path("/sys/fs/cgroup")
_USUAL = ("docker/{id}", "system.slice/docker-{id}.scope")


@dataclass(frozen=True, slots=True)
class Groups:
    """``pattern`` is the path of a group below ``base``, with ``{id}`` for the container's id."""

    base: Path
    pattern: str
    v2: bool

    def folder(self, container: str) -> Path:
        """Where a container's memory group is."""
        return self.base / self.pattern.replace("{id}", container)

    def counters(self, container: str) -> Counters:
        """What the kernel counts for a container."""
        return Counters(self.folder(container), v2=self.v2)

    def memory_limit(self, container: str) -> int | None:
        """Bytes; None when there is no limit, or it cannot be read."""
        name = "memory.max" if self.v2 else "memory.limit_in_bytes"
        try:
            return int((self.folder(container) / name).read_text())
        except (OSError, ValueError):
            return None


def find(container: str, pid: int, root: Path = ROOT, proc: Path = Path("/proc")) -> Groups | None:
    """Where groups of this daemon lie, from one running container; None where the host's files are not seen."""
    v2 = (root / "cgroup.controllers").exists()
    base = root if v2 else root / "memory"
    for path in (*_told(proc / str(pid) / "cgroup", container, v2), *_USUAL):
        found = Groups(base, path, v2)
        if found.folder(container).is_dir():
            return found
    return None


def _told(membership: Path, container: str, v2: bool) -> list[str]:
    """What the kernel says of a process; only if it is this container's: a pid may be of another name space."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, names, path = (*line.split(":", 2), "", "")[:3]
        if (number == "0" if v2 else "memory" in names.split(",")) and container in path:
            head, _, tail = path.lstrip("/").partition(container)
            found.append(head + "{id}" + tail.split("/", 1)[0])
    return found
