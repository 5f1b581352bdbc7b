"""The real service, started for a proof: plain, under strace, or with calls that strace makes fail."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.durability.support.model import CALLS
from tests.hostile.support import outside
from tests.support.runner import KEPT, Runner

# What the service keeps beside the objects: its log, its lock, notes on processes that no boot outlives, files
# under way, and the start's trial of the store. Nothing of it is ever acknowledged.
_BESIDE: Final = re.compile(r"serve\.log|run(/.*)?|store/lock|store/(staging|objects/probe)(/.*)?")
SYNCS: Final = ("fsync", "fdatasync", "syncfs", "sync", "sync_file_range")


def beside(path: str) -> bool:
    """Whether a path below the data folder is none of the objects."""
    return _BESIDE.fullmatch(path) is not None


def make(data: Path, prefix: Sequence[str] = (), **settings: str) -> Runner:
    """A service that is not started yet. PYTHONPATH: of a checkout that is not the one installed."""
    kept = {name: os.environ[name] for name in (*KEPT, "PYTHONPATH") if name in os.environ}
    return Runner(data, {**kept, **settings}, prefix=prefix)


@contextlib.contextmanager
def running(data: Path, prefix: Sequence[str] = (), **settings: str) -> Iterator[Runner]:
    """A service for the length of a block, ended by SIGTERM; one that was killed meanwhile is left alone."""
    runner = make(data, prefix, **settings).start()
    try:
        yield runner
    finally:
        if runner.process is not None and runner.process.poll() is None:
            runner.stop()


def strace(trace: Path, *options: str) -> list[str]:
    """What is put before a command to trace it. What it executes is not followed: sandboxes run as ever."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    wanted = ",".join(f"?{name}" for name in CALLS)
    return [
        "strace", "-D", "-f", "-b", "execve", "-yy", "-s", str(32 << 20), "-o", str(trace),
        "-e", "signal=none", "-e", f"trace={wanted}", *options,
    ]  # fmt: skip


def no_syncs() -> list[str]:
    """Options with which every sync succeeds and none is done."""
    return [option for name in SYNCS for option in ("-e", f"inject={name}:retval=0")]


def lines(trace: Path, pid: int) -> list[str]:
    """The lines of a trace whose program has ended."""
    end = re.compile(rf"^{pid} +\+\+\+ ", re.MULTILINE)  # short numbers are padded

    def complete() -> bool:
        with trace.open("rb") as file:
            file.seek(max(0, trace.stat().st_size - (1 << 16)))
            return end.search(file.read().decode("ascii", "replace")) is not None

    outside.wait_for(complete, "strace has written all", 60)
    with trace.open(encoding="ascii") as file:
        return list(file)


@contextlib.contextmanager
def failing(runner: Runner, *injections: str) -> Iterator[None]:
    """For the length of a block, calls of a running service fail as strace's ``inject`` is told."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    options = [part for injection in injections for part in ("-e", f"inject={injection}")]
    names = ",".join(injection.partition(":")[0] for injection in injections)
    command = ["strace", "-f", "-p", str(runner.pid), "-o", "/dev/null", "-e", f"trace={names}", *options]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    threads = Path(f"/proc/{runner.pid}/task")
    try:
        outside.wait_for(
            lambda: all(_traced(thread) for thread in threads.iterdir()), "strace holds every thread of the service"
        )
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(10)


def _traced(thread: Path) -> bool:
    try:
        return "TracerPid:\t0\n" not in (thread / "status").read_text()
    except OSError:
        return True
