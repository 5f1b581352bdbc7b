"""Whether the host can bear one more sandbox, or more bytes on its disk: a decision from what was read of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from runner.errors import HostPressure, StoreFull
from runner.limits.config import FREE_DISK, FREE_MEMORY, FREE_PIDS, Floors

Resource = Literal["memory", "pids", "open_files", "disk"]
AT_REST_BYTES: Final = 150 << 20  # what a sandbox takes once its interpreter has run a first cell
AT_REST_PIDS: Final = 16
AT_REST_FILES: Final = 12  # descriptors of the runner for one sandbox
FREE_FILES: Final = 64
FREE_INODES: Final = 2048
RETRY_MS: Final = 5000
_FRESH_S = 0.2
EVICTABLE: Final[frozenset[Resource]] = frozenset(("memory", "pids", "open_files"))


class Disk(NamedTuple):
    """What is left of the store's file system: bytes and inodes. None: not known here, or without a limit."""

    bytes: int | None = None
    inodes: int | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """What is left: bytes of memory, disk, processes, open files of the runner. None: not known here."""

    memory_bytes: int | None = None
    disk: Disk = field(default_factory=Disk)
    pids: int | None = None
    open_files: int | None = None


class Reader(Protocol):
    """Where the numbers come from."""

    def __call__(self) -> Host:
        """A look at everything."""
        ...

    def disk(self) -> Disk:
        """A look at the disk alone, cheap enough for every piece of an upload."""
        ...


@dataclass(frozen=True, slots=True)
class Shortage:
    """A resource of which too little is left, in words: how much, how much there must be, what to change."""

    resource: Resource
    left: int
    needed: int
    advice: str

    @property
    def detail(self) -> str:
        """For the caller."""
        unit = " bytes" if self.resource in ("memory", "disk") else ""
        what = self.resource.replace("_", " ")
        return f"too little {what} is left on the host ({self.left}{unit} of {self.needed} needed): {self.advice}"


def shortages(host: Host, floors: Floors, starting: int = 0) -> tuple[Shortage, ...]:
    """What a new sandbox would take too much of, while ``starting`` others have not taken their share yet."""
    count = starting + 1
    rows: tuple[tuple[Resource, int | None, int, str], ...] = (
        (
            "memory",
            host.memory_bytes,
            floors.memory_bytes + count * AT_REST_BYTES,
            f"free some, or lower {FREE_MEMORY}",
        ),
        (
            "pids",
            host.pids,
            floors.pids + count * AT_REST_PIDS,
            f"end processes, raise the limit, or lower {FREE_PIDS}",
        ),
        ("open_files", host.open_files, FREE_FILES + count * AT_REST_FILES, "raise LimitNOFILE of the service"),
        ("disk", host.disk.bytes, floors.disk_bytes, f"make room in SANDBOX_DATA_DIR, or lower {FREE_DISK}"),
        ("disk", host.disk.inodes, FREE_INODES, "its file system has too few free inodes: remove files from it"),
    )
    return tuple(
        Shortage(name, left, needed, advice)
        for name, left, needed, advice in rows
        if left is not None and left < needed
    )


class Pressure:
    """Looks at the host when asked; a look is good for a fifth of a second."""

    def __init__(self, floors: Floors, read: Reader, clock: Callable[[], float] = time.monotonic) -> None:
        self._floors, self._read, self._clock = floors, read, clock
        self._host = Host()
        self._seen = float("-inf")

    def look(self, *, anew: bool = False) -> Host:
        """What is left."""
        now = self._clock()
        if anew or now - self._seen > _FRESH_S:
            self._host, self._seen = self._read(), now
        return self._host

    def shortages(self, starting: int = 0, *, anew: bool = False) -> tuple[Shortage, ...]:
        """Why no sandbox may be started now; empty when one may."""
        return shortages(self.look(anew=anew), self._floors, starting)

    def check_disk(self, size: int = 0) -> None:
        """Whether ``size`` more bytes may be taken in. Raises StoreFull before the reserve is touched that
        commits of running cells and records need.
        """
        disk, floor = self._read.disk(), self._floors.disk_bytes
        free = disk.bytes
        if free is not None and free - size < floor:
            raise StoreFull(
                f"the disk of the store has {max(0, free - floor)} bytes left for uploads: delete conversations, make "
                f"room in SANDBOX_DATA_DIR, or lower {FREE_DISK}",
                limit=max(0, free - floor),
            )
        if disk.inodes is not None and disk.inodes < FREE_INODES:
            raise StoreFull("the file system of the store has too few free inodes: remove files from it")

    def state(self) -> dict[str, str]:
        """``ok`` or ``short`` for each resource, ``unknown`` where this host does not tell."""
        short = {shortage.resource for shortage in self.shortages()}
        host = self.look()
        left = {"memory": host.memory_bytes, "disk": host.disk.bytes, "pids": host.pids, "open_files": host.open_files}
        return {name: "short" if name in short else "unknown" if n is None else "ok" for name, n in left.items()}


def refusal(short: tuple[Shortage, ...]) -> HostPressure:
    """The error for a sandbox that is not started."""
    return HostPressure(
        "; ".join(shortage.detail for shortage in short),
        retry_after_ms=RETRY_MS,
        short=[shortage.resource for shortage in short],
    )
