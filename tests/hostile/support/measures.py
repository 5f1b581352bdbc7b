"""Figures of resources as the host counts them: a sandbox's groups, a process's memory and reads, sockets, space."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.support import outside
from tests.hostile.support.place import Place
from tests.support.runner import Runner

IDLE = 5  # processes and threads of a sandbox that waits: bwrap, agent, template with a library's thread, interpreter


def folders(place: Place) -> dict[str, Path]:
    """Groups of a place's sandbox as its runner noted them: by v1 controller, or ``v2``."""
    agent = place.agent
    noted = [Path(path) for record in outside.records(place.runner).values() for path in _paths(record)]
    mine = [path for path in noted if str(agent) in _read(path / "cgroup.procs").split()]
    return {"v2" if path.parts[4] == "unified" or (path / "cgroup.controllers").exists() else path.parts[4]: path
            for path in mine}  # fmt: skip


def _paths(record: dict[str, object]) -> list[str]:
    groups = record.get("groups")
    return [str(path) for path in groups] if isinstance(groups, list) else []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def group_figure(groups: dict[str, Path], v1: tuple[str, str], v2: str, key: str = "") -> int:
    """A number of a group, by its file on either version; ``key`` names the line in it."""
    path = groups[v1[0]] / v1[1] if v1[0] in groups else groups["v2"] / v2
    text = _read(path) or "0"
    if key:
        return next(int(line.split()[1]) for line in text.splitlines() if line.split()[0] == key)
    return int(text)


def processes(groups: dict[str, Path]) -> int:
    """Processes and threads in a sandbox's group now."""
    return group_figure(groups, ("pids", "pids.current"), "pids.current")


def oom_kills(groups: dict[str, Path]) -> int:
    """How often the kernel ended a process of the group for want of memory."""
    return group_figure(groups, ("memory", "memory.oom_control"), "memory.events", "oom_kill")


def used_cpu_s(pids: list[int]) -> float:
    """Processor seconds that living processes have used."""
    total = 0
    for pid in pids:
        fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
        total += sum(map(int, fields[11:13])) if fields else 0
    return total / os.sysconf("SC_CLK_TCK")


class Peak:
    """What a process's memory grows by at its highest, and what it reads and writes, within a block."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> Peak:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        self._memory, self._moved = self._kib("VmRSS"), self._chars()
        return self

    def __exit__(self, *_: object) -> None:
        self.grown_mib = (self._kib("VmHWM") - self._memory) / 1024
        moved = [(now - then) / (1 << 20) for now, then in zip(self._chars(), self._moved, strict=True)]
        self.read_mib, self.written_mib = moved

    def _kib(self, name: str) -> int:
        return int(outside.status(self._pid)[name].split()[0])

    def _chars(self) -> tuple[int, int]:
        fields = _read(Path(f"/proc/{self._pid}/io")).split()
        return int(fields[1]), int(fields[3])


def udp_mib() -> float:
    """Host memory that waits in UDP sockets of all namespaces."""
    line = next(line for line in Path("/proc/net/sockstat").read_text().splitlines() if line.startswith("UDP:"))
    return int(line.split()[-1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def free(path: Path) -> tuple[int, int]:
    """Bytes and inodes that a file system has free."""
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize, facts.f_favail


class Watch:
    """Calls ``look`` all the time in a thread; keeps the highest number it gave and when one above 0 came first."""

    def __init__(self, look: Callable[[], float]) -> None:
        self.highest, self.first = 0.0, 0.0
        self._look, self._done = look, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._done.is_set():
            seen = self._look()
            if seen > 0 and not self.first:
                self.first = time.monotonic()
            self.highest = max(self.highest, seen)
            self._done.wait(0.02)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


class Background:
    """A run in a thread of its own, interrupted at the end of the block if it goes on."""

    def __init__(self, place: Place, code: str, until: Callable[[], bool], **fields: Any) -> None:
        self._place, self._code, self._until, self._fields = place, code, until, fields
        self.result: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with self._place.runner.client() as http:
            url = f"/v1/conversations/{self._place.chat.id}/execute"
            self.result = http.post(url, json={"code": self._code, **self._fields}).json()

    def __enter__(self) -> Background:
        self._thread.start()
        outside.wait_for(self._until, "the attack is under way", 30)
        return self

    def __exit__(self, *_: object) -> None:
        chat = self._place.chat
        if self._thread.is_alive():
            chat.http.post(f"/v1/conversations/{chat.id}/interrupt", json={})
        self._thread.join(60)
        assert not self._thread.is_alive()


def has_file(place: Place, path: str) -> Callable[[], bool]:
    """Whether a file is there in a sandbox, seen from the host; the agent is looked up now."""
    agent = place.agent
    return lambda: Path(f"/proc/{agent}/root{path}").exists()


def counts(runner: Runner) -> dict[str, int]:
    """What must not grow with the number of runs and conversations: descriptors, processes, groups, mounts."""
    below = outside.descendants(runner.pid)
    dead = [pid for pid in _zombies() if pid[1] == runner.pid]
    return {
        "descriptors": len(os.listdir(f"/proc/{runner.pid}/fd")),
        "processes": len(below),
        "zombies": len(dead),
        "groups": len(outside.groups(runner.pid) & set(outside.records(runner))),
        "records": len(outside.records(runner)),
        "mounts": len(Path(f"/proc/{runner.pid}/mountinfo").read_text().splitlines()),
        "threads": len(os.listdir(f"/proc/{runner.pid}/task")),
    }


def _zombies() -> list[tuple[int, int]]:
    found = []
    for name in os.listdir("/proc"):
        fields = outside.status(int(name)) if name.isdigit() else {}
        if fields.get("State", "")[:1] == "Z":
            found.append((int(name), int(fields["PPid"])))
    return found
