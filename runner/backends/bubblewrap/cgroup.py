"""One control group per sandbox, on cgroup v2, on v1, or on v1 with an empty v2 tree beside it.

Groups are made below the runner's own, so that whatever limits the runner also limits its sandboxes.
The v2 tree is used for ``cgroup.kill`` even where it has no controllers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from runner.model import SandboxLimits, SandboxUsage

ROOT = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("memory", "pids", "cpu")
PREFIX = "foliobox-"
LEAF = "runner.foliobox"
_PERIOD_US = 100_000
_COUNTER_BYTES = 4096
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
        # Open descriptors: a run reads each of them twice. None once closed; removal is done in another thread.
        self._counters: dict[str, int] | None = {}
        self._counters_lock = threading.Lock()
        self._peak: int | None = None
        self._peak_known = True

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
        if "memory" in self._folders:
            return SandboxUsage(
                _number(self._counter("memory", "memory.usage_in_bytes")),
                _number(self._counter("memory", "memory.max_usage_in_bytes")),
                _of_key(self._counter("memory", "memory.oom_control"), b"oom_kill"),
            )
        if self._controllers_v2:
            return SandboxUsage(
                _number(self._counter("v2", "memory.current")),
                self._peak_v2(),
                _of_key(self._counter("v2", "memory.events"), b"oom_kill"),
            )
        return SandboxUsage()

    def _counter(self, group: str, name: str) -> bytes:
        """What a file of a group says now; empty when it cannot be read."""
        with self._counters_lock, contextlib.suppress(OSError):
            if self._counters is not None:
                fd = self._counters.get(name)
                if fd is None:
                    fd = self._counters[name] = os.open(self._folders[group] / name, os.O_RDONLY | os.O_CLOEXEC)
                return os.pread(fd, _COUNTER_BYTES, 0)
        return b""

    def reset_peak(self) -> None:
        """Peaks count from now; on v2 the new mark belongs to a descriptor (Linux 6.12), else it is unknown."""
        if "memory" in self._folders:
            with contextlib.suppress(OSError):
                if self._peak is None:
                    flags = os.O_WRONLY | os.O_CLOEXEC
                    self._peak = os.open(self._folders["memory"] / "memory.max_usage_in_bytes", flags)
                os.pwrite(self._peak, b"0", 0)
        elif self._controllers_v2:
            try:
                if self._peak is None:
                    self._peak = os.open(self._folders["v2"] / "memory.peak", os.O_RDWR | os.O_CLOEXEC)
                os.write(self._peak, b"reset")
            except OSError:
                self._peak_known = False

    def _peak_v2(self) -> int | None:
        if not self._peak_known:
            return None
        if self._peak is None:
            return _number(self._counter("v2", "memory.peak"))
        try:
            return int(os.pread(self._peak, 64, 0))
        except (OSError, ValueError):
            return None

    def _close_counters(self) -> None:
        with self._counters_lock:
            for fd in (self._counters or {}).values():
                os.close(fd)
            self._counters = None

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
        self._close_counters()
        if self._peak is not None:
            os.close(self._peak)
            self._peak, self._peak_known = None, False
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


def _number(text: bytes) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _of_key(text: bytes, key: bytes) -> int | None:
    for line in text.splitlines():
        name, _, value = line.partition(b" ")
        if name == key:
            return _number(value)
    return None
