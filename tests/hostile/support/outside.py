"""The host's view of sandboxes: processes, descriptors, groups and mounts, read by root from /proc."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.runner import Runner
from tests.support.sandboxes import descendants as descendants
from tests.support.sandboxes import ended, on_engine

DEADLINE_S = 15.0


def wait_for(condition: Callable[[], bool], what: str, limit_s: float = DEADLINE_S) -> None:
    """Return once ``condition`` holds; AssertionError at the deadline."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what}"
        time.sleep(0.02)


def status(pid: int) -> dict[str, str]:
    """Fields of /proc/PID/status; empty when the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    return status(pid).get("State", "Z")[0] not in "ZX"


def born(pid: int) -> str:
    """Start time, which tells a process from a later one of the same number."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def inner_pid(pid: int) -> int:
    """The number that a process has in its innermost PID namespace."""
    return int(status(pid)["NSpid"].split()[-1])


def descriptors(pid: int) -> dict[int, str]:
    """What a process's descriptors point to, as the host names it."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
    return found


def foreign_descriptors(pid: int) -> list[str]:
    """Descriptors of a process that lead to a mount which its sandbox does not have; kernel objects are no files."""
    mounts = {line.split()[0] for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()}
    found = []
    for number, target in descriptors(pid).items():
        try:
            info = Path(f"/proc/{pid}/fdinfo/{number}").read_text()
        except OSError:
            continue
        mount = next(line.split()[1] for line in info.splitlines() if line.startswith("mnt_id"))
        kernel = target.startswith(("pipe:[", "socket:[", "anon_inode:", "/memfd:"))
        if mount not in mounts and not kernel:
            found.append(f"{number} -> {target}")
    return found


def namespace(pid: int | str, kind: str) -> str:
    """Identity of a namespace."""
    return os.readlink(f"/proc/{pid}/ns/{kind}")


def argument_area(pid: int) -> bytes:
    """The agent's canary: the memory that holds its arguments and environment."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[48])
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(start)
        return memory.read(end - start)


def digest(path: Path | str) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def records(runner: Runner) -> dict[str, dict[str, object]]:
    """Noted sandboxes of a runner."""
    found = {}
    for path in (runner.data / "run").glob("*.json"):
        try:
            found[path.stem] = json.loads(path.read_text())
        except FileNotFoundError:
            continue
    return found


def groups(runner_pid: int) -> set[str]:
    """Control groups of sandboxes below a runner's own groups, by the sandbox's id."""
    found = set()
    for line in Path(f"/proc/{runner_pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for base in (f"/sys/fs/cgroup/{names}", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
            for place in (Path(base + path), Path(base)):
                found |= {folder.name.removeprefix("foliobox-") for folder in place.glob("foliobox-*")}
    return found


def left_on_host(runner: Runner, known: set[str]) -> list[str]:
    """What stayed of sandboxes that are gone: ended containers; groups of those in ``known``; mounts."""
    if on_engine():
        return ended(runner)
    gone = known - set(records(runner))
    left = [f"group of {name}" for name in gone & groups(runner.pid)]
    left += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(runner.data) in line]
    return left
