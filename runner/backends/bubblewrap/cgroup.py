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

from runner.model import SandboxLimits, SandboxUsage

ROOT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("memory", "pids", "cpu")
PREFIX = "foliobox-"
_PERIOD_US = 100_000


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
            leaf = group / "foliobox-runner"
            leaf.mkdir(exist_ok=True)
            for pid in (group / "cgroup.procs").read_text().split():
                (leaf / "cgroup.procs").write_text(pid)
        control.write_text("+memory +pids +cpu")
        return True
    except OSError:
        return False


class Group:
    """The groups of one sandbox. Never reused: what one sandbox leaves charged must not harm the next."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self._folders = folders

    @classmethod
    def create(cls, parents: Parents, name: str, limits: SandboxLimits) -> Group:
        """Make and limit the groups. Raises OSError; then nothing is left behind."""
        group = cls({})
        try:
            if parents.v2 is not None:
                group._make("v2", parents.v2 / f"{PREFIX}{name}")
                if parents.v2_controllers:
                    group._limit_v2(limits)
            if not parents.v2_controllers:
                for controller, parent in parents.v1.items():
                    group._make(controller, parent / f"{PREFIX}{name}")
                group._limit_v1(limits)
        except OSError:
            group.remove()
            raise
        return group

    @classmethod
    def reopen(cls, folders: list[str]) -> Group:
        """The groups of a dead runner's sandbox, for removal."""
        return cls({f"{index}": Path(folder) for index, folder in enumerate(folders)})

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
        if "memory" in self._folders:
            folder = self._folders["memory"]
            return SandboxUsage(
                _read_int(folder / "memory.usage_in_bytes"),
                _read_int(folder / "memory.max_usage_in_bytes"),
                _read_key(folder / "memory.oom_control", "oom_kill"),
            )
        if "v2" in self._folders and (self._folders["v2"] / "memory.current").exists():
            folder = self._folders["v2"]
            return SandboxUsage(
                _read_int(folder / "memory.current"),
                _read_int(folder / "memory.peak"),
                _read_key(folder / "memory.events", "oom_kill"),
            )
        return SandboxUsage()

    def reset_peak(self) -> None:
        """Peaks count from now (v1 only: on v2 the mark belongs to a descriptor, Linux 6.12)."""
        if "memory" in self._folders:
            with contextlib.suppress(OSError):
                (self._folders["memory"] / "memory.max_usage_in_bytes").write_text("0")

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
        deadline = time.monotonic() + limit_s
        left = [folder for folder in self._folders.values() if folder.exists()]
        while left:
            for folder in list(left):
                with contextlib.suppress(FileNotFoundError):
                    try:
                        folder.rmdir()
                    except FileNotFoundError:
                        pass
                    except OSError:
                        continue
                left.remove(folder)
            if left:
                if time.monotonic() > deadline:
                    return False
                self.kill()
                time.sleep(0.01)
        return True

    def _make(self, key: str, folder: Path) -> None:
        folder.mkdir()
        self._folders[key] = folder

    def _limit_v2(self, limits: SandboxLimits) -> None:
        folder = self._folders["v2"]
        (folder / "memory.max").write_text(str(limits.memory_bytes))
        (folder / "memory.oom.group").write_text("0")  # the agent must survive its children's end
        with contextlib.suppress(OSError):
            (folder / "memory.swap.max").write_text("0")
        (folder / "pids.max").write_text(str(limits.pids))
        (folder / "cpu.max").write_text(f"{int(limits.cpus * _PERIOD_US)} {_PERIOD_US}")

    def _limit_v1(self, limits: SandboxLimits) -> None:
        if "memory" in self._folders:
            folder = self._folders["memory"]
            (folder / "memory.limit_in_bytes").write_text(str(limits.memory_bytes))
            with contextlib.suppress(OSError):
                (folder / "memory.memsw.limit_in_bytes").write_text(str(limits.memory_bytes))
        if "pids" in self._folders:
            (self._folders["pids"] / "pids.max").write_text(str(limits.pids))
        if "cpu" in self._folders:
            (self._folders["cpu"] / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._folders["cpu"] / "cpu.cfs_quota_us").write_text(str(int(limits.cpus * _PERIOD_US)))


def _pids(folder: Path) -> list[int]:
    try:
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    except OSError:
        return []


def _read_int(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _read_key(path: Path, key: str) -> int | None:
    try:
        for line in path.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == key:
                return int(value)
    except (OSError, ValueError):
        pass
    return None
