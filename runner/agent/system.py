"""The few kernel calls the agent needs: dumpable flag, subreaper, processes of the sandbox, stopping, mappings."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable

PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 4, 36
_CHILD = (signal.SIGCHLD,)
_LOOK_AGAIN_S = 0.002
_EXITING = 0x4  # PF_EXITING, in the flags of /proc/PID/stat
_GVISOR_STOPPED = 0x7F  # it says "killed" with the low byte of a wait status for "stopped"; no signal has that number
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


def yield_to_agent() -> None:
    """Lowest priority, for this process and all it starts; nothing in a sandbox may raise it again.

    A sandbox's processes share one CPU quota: among 250 that spin the agent would be heard once in seconds. The
    priority counts inside the sandbox's own group only, so that a cell that runs alone is not slower for it.
    """
    with contextlib.suppress(OSError):
        os.nice(19)


def give_back_memory() -> None:
    """Return what malloc holds free to the kernel."""
    with contextlib.suppress(AttributeError):
        _libc.malloc_trim(0)


def read_small(path: str, size: int = 4096) -> bytes:
    """The first bytes of a file of /proc, with as few calls as possible."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, size)
    finally:
        os.close(fd)


def processes(*, dead: bool = False) -> dict[int, int]:
    """All living processes this one can see, and the dead not waited for if wanted, as pid → parent pid.

    A zombie whose other threads go on is alive: its first thread has ended, and nothing else has.
    """
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = read_small(f"/proc/{name}/stat").rpartition(b")")[2].split()
            except OSError:
                continue
            if not dead and (fields[0] == b"X" or (fields[0] == b"Z" and int(fields[17]) <= 1)):
                continue
            found[int(name)] = int(fields[1])
    return found


def dying(pid: int) -> bool:
    """Whether the kernel is ending a process (PF_EXITING), or has ended it and its parent does not know yet."""
    try:
        fields = read_small(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return True
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _EXITING)


def children(pid: int) -> list[int]:
    """Living children of a process."""
    return [child for child, parent in processes().items() if parent == pid]


def others(keep: Collection[int], *, dead: bool = False) -> list[int]:
    """Processes of this sandbox that are neither the agent nor in ``keep``; the dead only if wanted.

    As PID 1 that is everything visible; elsewhere (no PID namespace) only the agent's descendants.
    """
    me = os.getpid()
    seen = processes(dead=dead)
    if me == 1:
        return [pid for pid in seen if pid != 1 and pid not in keep]
    mine: set[int] = {me}
    grown = True
    while grown:
        more = {pid for pid, parent in seen.items() if parent in mine} - mine
        mine |= more
        grown = bool(more)
    return [pid for pid in mine if pid != me and pid not in keep]


def stop_all() -> bool:
    """SIGSTOP everything in the sandbox but the agent; False without a PID namespace, where it would hit others."""
    if os.getpid() != 1:
        return False
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(-1, signal.SIGSTOP)
    return True


def standing(pid: int) -> bool:
    """Whether a process is stopped, or gone, or about to be."""
    try:
        fields = read_small(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return True
    return fields[0] in (b"T", b"t", b"Z", b"X") or bool(int(fields[6]) & _EXITING)


def stand_still(keep: Collection[int], wake: Callable[[], None], limit_s: float = 0.5) -> list[int]:
    """Stop everything in the sandbox that is not kept and see it stand; gives what was not stopped before.

    Whatever is kept is stopped by that too: ``wake`` lets it go on.
    """
    before = others(keep)
    running = [pid for pid in before if not standing(pid)]
    if not running:
        return []
    if stop_all():
        wake()
        running += set(others(keep)).difference(before)  # what was born until the stop
    else:
        for pid in running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and not all(map(standing, running)):
        time.sleep(0.0005)
    return running


def kill_all(keep: Iterable[int], reap: Callable[[], object], limit_s: float) -> tuple[bool, int]:
    """SIGKILL whatever is not kept until nothing is left; gives whether there was anything, and how many survived.

    A process group is not enough: ``setsid`` escapes it. Victims may fork faster than they are found, so all are
    stopped first: one call to the kernel, in whose course nobody forks. Whatever is kept was stopped by that too.
    """
    kept = frozenset(keep)
    began = time.monotonic()
    killed: set[int] = set()
    while True:
        round_began = time.monotonic()
        victims = others(kept)
        if victims and stop_all():
            victims = others(kept)
        for pid in victims:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        reap()
        if not victims:
            return bool(killed), 0
        killed.update(victims)
        now = time.monotonic()
        if now - began > limit_s:
            return True, len(victims)
        # The dying need the processor more than we do: looking at hundreds of them takes milliseconds.
        time.sleep(min(0.02, max(0.0005, 2 * (now - round_began))))


def wait_for_death(pid: int, limit_s: float) -> None:
    """Until a child that was killed is dead, and its memory free; it stays to be waited for."""
    deadline = time.monotonic() + limit_s
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return
            time.sleep(0.0005)


def stop_and_wait(pid: int, limit_s: float = 0.5) -> bool:
    """SIGSTOP a child and see it stopped; False when it died instead or did not stop in time.

    It waits for SIGCHLD: looking again and again would take the processor that the child needs to stop. The signal
    may have been another child's, so it is sent on.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _CHILD)
    heard = False
    try:
        os.kill(pid, signal.SIGSTOP)
        deadline = time.monotonic() + limit_s
        while (left := deadline - time.monotonic()) > 0:
            info = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if info is not None:
                return info.si_code == os.CLD_STOPPED or info.si_status == _GVISOR_STOPPED
            # Not for long: where there are other threads, one of them may have got the signal.
            heard = signal.sigtimedwait(_CHILD, min(left, _LOOK_AGAIN_S)) is not None or heard
    except (ChildProcessError, ProcessLookupError):
        return False
    finally:
        if heard:
            os.kill(os.getpid(), signal.SIGCHLD)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return False


def shared_inodes(pid: int, device: int) -> set[int]:
    """Inodes of one file system that a process has mapped shared (writes through such show in no timestamp)."""
    found: set[int] = set()
    wanted = b"%02x:%02x" % (os.major(device), os.minor(device))
    try:
        fd = os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return found
    text = b""
    try:
        with contextlib.suppress(OSError):
            while data := os.read(fd, 1 << 16):
                text += data
    finally:
        os.close(fd)
    if b" " + wanted + b" " not in text:
        return found  # as nearly always, and an interpreter has a thousand mappings
    for line in text.split(b"\n"):
        fields = line.split(None, 5)
        if len(fields) >= 5 and fields[1].endswith(b"s") and fields[3] == wanted:
            found.add(int(fields[4]))
    return found
