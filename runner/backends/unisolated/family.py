"""Finds and ends the processes of an unisolated sandbox: no namespace and no group holds them together.

Members are what proot follows, its descendants, whatever has the sandbox's own uid, and, for what a dead
runner left, whatever carries the sandbox's mark in its first environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass

from runner.backends.unisolated.args import MARK


@dataclass(frozen=True, slots=True)
class Process:
    """One line of /proc."""

    pid: int
    parent: int
    tracer: int
    uid: int
    zombie: bool


@dataclass(frozen=True, slots=True)
class Family:
    """How to know the processes of a sandbox; ``root`` is proot's pid (0: unknown), ``uid`` the one it has alone."""

    sandbox_id: str
    root: int
    uid: int | None

    def members(self) -> set[int]:
        """Living processes of the sandbox, proot among them; never this process."""
        seen = list(_processes())
        found = {p.pid for p in seen if self._belongs(p)}
        grown = True
        while grown:
            more = {p.pid for p in seen if p.parent in found} - found
            found |= more
            grown = bool(more)
        found -= {os.getpid()}
        return {p.pid for p in seen if p.pid in found and not p.zombie}

    def _belongs(self, process: Process) -> bool:
        if self.root and self.root in (process.pid, process.tracer):
            return True
        if self.uid is not None:
            return process.uid == self.uid
        return not self.root and _marked(process.pid, self.sandbox_id)

    def kill(self, limit_s: float = 5.0) -> bool:
        """SIGKILL until none is left, proot last: what it no longer follows is no longer found by it."""
        deadline = time.monotonic() + limit_s
        while members := self.members():
            for pid in (members - {self.root}) or members:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True


def _processes() -> list[Process]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, KeyError, ValueError), open(f"/proc/{name}/status") as file:
                fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
                found.append(
                    Process(
                        int(name),
                        int(fields["PPid"]),
                        int(fields["TracerPid"]),
                        int(fields["Uid"].split()[0]),
                        fields["State"].startswith(("Z", "X")),
                    )
                )
    return found


def _marked(pid: int, sandbox_id: str) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return f"{MARK}={sandbox_id}".encode() in file.read(1 << 16).split(b"\0")
    return False
