"""The few kernel calls the agent needs: dumpable flag, subreaper, processes of the sandbox, reaping."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
_libc = ctypes.CDLL(None, use_errno=True)


def set_dumpable(on: bool) -> None:
    """Whether processes of the same uid may open this one's memory and descriptors under /proc."""
    _libc.prctl(PR_SET_DUMPABLE, int(on), 0, 0, 0)


def become_subreaper() -> None:
    """Adopt orphaned descendants, so that interpreters forked by the template are ours to wait for."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def prefer_as_oom_victim(score: int) -> None:
    """Let the kernel take this process before the agent when memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(score))


def processes() -> dict[int, int]:
    """All processes this one can see, as pid → parent pid; zombies are left out."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                found[int(name)] = int(fields[1])
    return found


def others(keep: Iterable[int]) -> list[int]:
    """Processes of this sandbox that are neither the agent nor in ``keep``.

    As PID 1 that is everything visible; elsewhere (no PID namespace) only the agent's descendants.
    """
    me = os.getpid()
    kept = {me, *keep}
    seen = processes()
    if me == 1:
        return [pid for pid in seen if pid not in kept]
    mine: set[int] = {me}
    grown = True
    while grown:
        more = {pid for pid, parent in seen.items() if parent in mine} - mine
        mine |= more
        grown = bool(more)
    return [pid for pid in mine if pid not in kept]


def kill_all(keep: Iterable[int], reap: Callable[[], object], limit_s: float) -> int:
    """SIGKILL whatever is not kept until nothing is left; returns how many survived ``limit_s`` seconds.

    A process group is not enough: ``setsid`` escapes it. Rounds repeat because victims may fork meanwhile.
    """
    kept = tuple(keep)
    deadline = time.monotonic() + limit_s
    while True:
        victims = others(kept)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if not victims:
            return 0
        if time.monotonic() > deadline:
            return len(victims)
        time.sleep(0.0005)


def stop_and_wait(pid: int, limit_s: float = 0.5) -> bool:
    """SIGSTOP a child and see it stopped; False when it died instead or did not stop in time."""
    try:
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            info = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if info is not None:
                return info.si_code == os.CLD_STOPPED
            time.sleep(0.00005)
    except (ChildProcessError, ProcessLookupError):
        return False
    return False


def shared_mappings(pid: int, root: str) -> set[str]:
    """Paths below ``root`` that a process has mapped shared and writable (writes show in no timestamp)."""
    found: set[str] = set()
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:
        for line in file:
            if b" rw-s " in line:
                path = os.fsdecode(line.split(None, 5)[-1].rstrip(b"\n"))
                if path.startswith(root + "/"):
                    found.add(path[len(root) + 1 :])
    return found
