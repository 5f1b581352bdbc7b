"""One control group per sandbox, on cgroup v2, on v1, or on v1 with an empty v2 tree beside it.

Groups are made below the runner's own, so that whatever limits the runner also limits its sandboxes.
The v2 tree is used for ``cgroup.kill`` even where it has no controllers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from runner.backends.counters import Counters
from runner.model import SandboxLimits, SandboxUsage

ROOT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("memory", "pids", "cpu")
PREFIX = "foliobox-"
LEAF = "runner.foliobox"
_PERIOD_US = 100_000
# Half of what the runner has, so that it answers while every sandbox computes; among themselves all are alike.
# Less would starve sandboxes where other programs keep the host busy.
_SHARES_V1, _WEIGHT_V2 = 512, 50


@dataclass(frozen=True, slots=True)
class Parents:
    """Where groups can be made: per v1 controller, and in the v2 tree (with or without controllers)."""

    v1: dict[str, Path]
    v2: Path | None
    v2_controllers: bool

    @property
    def complete(self) -> bool:
        """Whether memory, processes and CPU can all be limited."""
        return self.v2_controllers or set(self.v1) == set(V1_CONTROLLERS)


def find_parents(root: Path = ROOT, membership: str | None = None) -> Parents:
    """Groups of this process below which it may make others; empty where it may not."""
    lines = (membership if membership is not None else Path("/proc/self/cgroup").read_text()).splitlines()
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in lines:
        number, names, path = line.split(":", 2)
        relative = path.lstrip("/")
        if number == "0":
            base = root if (root / "cgroup.controllers").exists() else root / "unified"
            v2 = _usable(base, relative)
        else:
            for name in set(names.split(",")) & set(V1_CONTROLLERS):
                place = _usable(root / name, relative)
                if place is not None:
                    v1[name] = place
    return Parents(v1, v2, v2 is not None and _delegate(v2))


def _usable(base: Path, relative: str) -> Path | None:
    place = base / relative
    if not place.is_dir():
        place = base  # the path may be of an outer cgroup namespace
    if place.name == LEAF:
        place = place.parent  # a runner before this one in the same session moved us there
    return place if os.access(place / "cgroup.procs", os.W_OK) and os.access(place, os.W_OK) else None


def _delegate(group: Path) -> bool:
    """Make controllers available to child groups; this moves the runner into a leaf of its own group."""
    try:
        available = set((group / "cgroup.controllers").read_text().split())
        if not {"memory", "pids", "cpu"} <= available:
            return False
        control = group / "cgroup.subtree_control"
        if {"memory", "pids", "cpu"} <= set(control.read_text().split()):
            return True
        if (group / "cgroup.type").exists():  # not the root: processes may live in leaves only
            leaf = group / LEAF
            leaf.mkdir(exist_ok=True)
            for pid in (group / "cgroup.procs").read_text().split():
                (leaf / "cgroup.procs").write_text(pid)
        control.write_text("+memory +pids +cpu")
        return True
    except OSError:
        return False


class Group:
    """The groups of one sandbox. Never reused: what one sandbox leaves charged must not harm the next."""

    def __init__(self, folders: dict[str, Path], controllers_v2: bool = False) -> None:
        self._folders, self._controllers_v2 = folders, controllers_v2
        memory = folders.get("v2" if controllers_v2 else "memory")
        self._counters = Counters(memory, v2=controllers_v2) if memory is not None else None

    @classmethod
    def planned(cls, parents: Parents, name: str) -> Group:
        """The groups that ``make`` will make; nothing is made yet."""
        folders: dict[str, Path] = {}
        if parents.v2 is not None:
            folders["v2"] = parents.v2 / f"{PREFIX}{name}"
        if not parents.v2_controllers:
            folders |= {controller: parent / f"{PREFIX}{name}" for controller, parent in parents.v1.items()}
        return cls(folders, parents.v2_controllers)

    def make(self, limits: SandboxLimits) -> None:
        """Make and limit the groups. Raises OSError; then ``remove`` is due."""
        for folder in self._folders.values():
            folder.mkdir()
        if self._controllers_v2:
            self._limit_v2(limits)
        else:
            self._limit_v1(limits)

    @classmethod
    def reopen(cls, folders: list[str]) -> Group:
        """The groups of a dead runner's sandbox, for removal; a path that is no group of ours is left out."""
        ours = [Path(folder) for folder in dict.fromkeys(folders)]
        ours = [folder for folder in ours if folder.name.startswith(PREFIX) and ".." not in folder.parts]
        return cls({f"{index}": folder for index, folder in enumerate(ours)})

    @property
    def folders(self) -> list[str]:
        """Paths of all groups."""
        return [str(folder) for folder in self._folders.values()]

    @property
    def procs(self) -> list[str]:
        """Files into which a process writes its pid to join."""
        return [str(folder / "cgroup.procs") for folder in self._folders.values()]

    def usage(self) -> SandboxUsage:
        """Memory now, its peak, and how many processes the kernel killed for want of it."""
        return self._counters.usage() if self._counters is not None else SandboxUsage()

    def reset_peak(self) -> None:
        """Peaks count from now, or are unknown."""
        if self._counters is not None:
            self._counters.reset_peak()

    def kill(self) -> None:
        """End every process of the sandbox: by ``cgroup.kill`` where it exists, else by rounds of SIGKILL."""
        for folder in self._folders.values():
            with contextlib.suppress(OSError):
                if (folder / "cgroup.kill").exists():
                    (folder / "cgroup.kill").write_text("1")
                    return
        for _ in range(50):
            pids = {pid for folder in self._folders.values() for pid in _pids(folder)}
            if not pids:
                return
            for pid in pids:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def remove(self, limit_s: float = 5.0) -> bool:
        """Kill, then remove the groups; False when some could not be removed in time (zombies hold them)."""
        self.kill()
        if self._counters is not None:
            self._counters.close()
        deadline = time.monotonic() + limit_s
        left = [folder for folder in self._folders.values() if folder.exists()]
        while left:
            left = [folder for folder in left if not _removed(folder)]
            if left:
                if time.monotonic() > deadline:
                    return False
                self.kill()
                time.sleep(0.01)
        return True

    def _limit_v2(self, limits: SandboxLimits) -> None:
        folder = self._folders["v2"]
        (folder / "memory.max").write_text(str(limits.memory_bytes))
        (folder / "memory.oom.group").write_text("0")  # the agent must survive its children's end
        with contextlib.suppress(OSError):
            (folder / "memory.swap.max").write_text("0")
        (folder / "pids.max").write_text(str(limits.pids))
        (folder / "cpu.max").write_text(f"{int(limits.cpus * _PERIOD_US)} {_PERIOD_US}")
        (folder / "cpu.weight").write_text(str(_WEIGHT_V2))

    def _limit_v1(self, limits: SandboxLimits) -> None:
        if "memory" in self._folders:
            folder = self._folders["memory"]
            (folder / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
            with contextlib.suppress(OSError):
                (folder / "memory.memsw.limit_in_bytes").write_text(str(limits.memory_bytes))
            # On v1 the buffers of INET sockets count only where they have a limit of their own.
            with contextlib.suppress(OSError):
                (folder / "memory.kmem.tcp.limit_in_bytes").write_text(str(limits.memory_bytes // 16))
        if "pids" in self._folders:
            (self._folders["pids"] / "pids.max").write_text(str(limits.pids))
        if "cpu" in self._folders:
            (self._folders["cpu"] / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._folders["cpu"] / "cpu.cfs_quota_us").write_text(str(int(limits.cpus * _PERIOD_US)))
            (self._folders["cpu"] / "cpu.shares").write_text(str(_SHARES_V1))


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _pids(folder: Path) -> list[int]:
    try:
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []
