"""The agent's child processes: the template, the interpreters it forks, and shells."""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import struct
from collections import deque
from collections.abc import Callable

from . import system
from .egress import site_packages
from .loader import LOADER
from .protocol import MAX_REPORT, Json, ProtocolViolation, pack_message, unpack_message
from .spawn import spawn

RUN_NUMBER = struct.Struct("!Q")
INLINE_REQUEST = 64 << 10
_EXEC_LIMIT_S = 1.0


def memfd(name: str, content: bytes) -> int:
    """A descriptor that reads ``content`` from its start; works as stdin and needs nobody to feed it."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def output_pipe() -> tuple[int, int]:
    """A pipe whose reading end does not block."""
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)
    return read, write


def send_with_fds(sock: socket.socket, body: Json, fds: list[int]) -> None:
    """One small message and descriptors that the receiver gets copies of."""
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
    sock.sendmsg([json.dumps(body).encode()], [rights])


class Interpreter:
    """A Python process forked from the template, stopped (SIGSTOP) whenever no cell runs in it."""

    def __init__(self) -> None:
        self.pid = 0
        self.ready = False
        self.used = False
        self.script = False
        self.dead = False
        self.broken = False
        self.closed = False
        self.buffer = bytearray()
        self.sock, self._peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.stdout, self._stdout_end = output_pipe()
        self.stderr, self._stderr_end = output_pipe()
        self.target = memfd("interrupt-target", RUN_NUMBER.pack(0))
        self._taken = os.eventfd(0, os.EFD_CLOEXEC)

    def ends(self) -> list[int]:
        """Descriptors for the forked process, in the order the template expects."""
        return [self._stdout_end, self._stderr_end, self._peer.fileno(), self.target, self._taken]

    def close_ends(self) -> None:
        """After the fork: only the interpreter may hold its ends."""
        if self._stdout_end >= 0:
            self._peer.close()
            os.close(self._stdout_end)
            os.close(self._stderr_end)
            self._stdout_end = self._stderr_end = -1

    def begin(self, number: int, code: bytes, env: dict[str, str], stdin: bytes, script: bool = False) -> None:
        """Wake the interpreter and hand it a cell, or a ``script`` that it becomes.

        One descriptor (its input) is all it needs room for, unless the code is too long for the socket.
        """
        self.aim(0)
        self.script = script
        request = pack_message({"n": number, "env": env, "script": script}, (code,))
        fds = [memfd("stdin", stdin) if stdin else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
        try:
            if len(request) > INLINE_REQUEST:
                fds.append(memfd("request", request))
                request = b""
            os.kill(self.pid, signal.SIGCONT)
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
            data = len(request).to_bytes(4, "big") + request
            if self.sock.sendmsg([data], [rights]) != len(data):
                raise OSError("it did not take the whole request")
        finally:
            for fd in fds:
                os.close(fd)

    def took_display(self) -> None:
        """Let the interpreter go on: what it printed before and after what it showed stays in order."""
        os.eventfd_write(self._taken, 1)

    def aim(self, number: int) -> None:
        """Say which run the next SIGINT is meant for (0: none)."""
        os.pwrite(self.target, RUN_NUMBER.pack(number), 0)

    def messages(self) -> list[tuple[Json, list[bytes]]]:
        """Messages that have arrived; EOFError when the interpreter closed its end."""
        try:
            data = self.sock.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            raise EOFError
        self.buffer += data
        out = []
        while len(self.buffer) >= 4:
            size = int.from_bytes(self.buffer[:4], "big")
            if size > MAX_REPORT:
                raise ProtocolViolation("interpreter message too large")
            if len(self.buffer) < 4 + size:
                break
            out.append(unpack_message(bytes(self.buffer[4 : 4 + size])))
            del self.buffer[: 4 + size]
        return out

    def kill(self) -> None:
        """SIGKILL, unless it was born not yet, or has been waited for: then its pid may be another's."""
        if self.pid and not self.dead:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the agent's ends; nothing may watch them any more."""
        if not self.closed:
            self.closed = True
            self.close_ends()
            self.sock.close()
            for fd in (self.stdout, self.stderr, self.target, self._taken):
                os.close(fd)


class Template:
    """A process with the heavy libraries imported, from which interpreters are forked in milliseconds."""

    def __init__(self, python: str, bundle: bytes, config: Json) -> None:
        self.ready = False
        self.dead = False
        self.unborn: deque[Interpreter] = deque()
        self._asked = 0
        self.sock, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.setblocking(False)
        source = memfd("bundle", len(bundle).to_bytes(4, "big") + bundle)
        null = os.open(os.devnull, os.O_WRONLY)
        os.set_inheritable(peer.fileno(), True)
        arguments = [python, "-P", "-s", "-c", LOADER, "foliobox_agent.template", json.dumps(config)]
        arguments.append(str(peer.fileno()))
        # Fewer arenas and an early return of freed pages: what the imports left over is not kept.
        env = {"MALLOC_ARENA_MAX": "1", **os.environ}
        try:
            # Its complaints go where the agent's go: to the host's log.
            self.pid = spawn(python, arguments, env, {0: source, 1: null})
        finally:
            peer.close()
            os.close(source)
            os.close(null)

    def ask(self) -> None:
        """Ask for every interpreter that is wanted and was not asked for; their pids come back in order."""
        self.wake()
        if self.ready and not self.dead:
            for interpreter in list(self.unborn)[self._asked :]:
                send_with_fds(self.sock, {"op": "fork"}, interpreter.ends())
                interpreter.close_ends()
                self._asked += 1

    def wake(self) -> None:
        """Let it go on if user code has stopped it, or a helper that it waits for while it imports."""
        if self.dead:
            return
        stopped = [self.pid]
        if not self.ready:
            stopped += system.children(self.pid)
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)

    def born(self, pid: int) -> Interpreter | None:
        """The interpreter that has been waiting longest now has a process."""
        if not self._asked:
            return None
        self._asked -= 1
        interpreter = self.unborn.popleft()
        interpreter.pid = pid
        return interpreter

    def cancel(self, interpreter: Interpreter) -> None:
        """Do not ask for an interpreter that was wanted, if that has not been done yet."""
        if interpreter in list(self.unborn)[self._asked :]:
            self.unborn.remove(interpreter)

    @property
    def busy(self) -> bool:
        """Whether a fork is under way."""
        return self._asked > 0

    def receive(self) -> Json:
        """One message of the template; EOFError when it is gone."""
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        body = json.loads(data)
        return body if isinstance(body, dict) else {}

    def kill(self) -> None:
        """SIGKILL, unless it has been waited for."""
        if not self.dead:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Forget the template's socket."""
        self.sock.close()


class Shell:
    """A bash process for one run."""

    def __init__(self, code: bytes, stdin: bytes, env: dict[str, str]) -> None:
        self.dead = False
        self.stdout, stdout_end = output_pipe()
        self.stderr, stderr_end = output_pipe()
        script, given = memfd("script", code), memfd("stdin", stdin)
        places = {0: given, 1: stdout_end, 2: stderr_end, 9: script}
        packages = os.environ.get("PIP_PREFIX")
        more = {"PYTHONPATH": site_packages(packages)} if packages else {}
        try:
            self.pid = spawn("/bin/bash", ["bash", "/dev/fd/9"], {**os.environ, **more, **env}, places, _EXEC_LIMIT_S)
        except OSError:
            self.close()
            raise
        finally:
            for fd in (stdout_end, stderr_end, script, given):
                os.close(fd)

    def close(self) -> None:
        """Close the reading ends; nothing may watch them any more."""
        os.close(self.stdout)
        os.close(self.stderr)


class Reaper:
    """Waits for children without blocking and tells whoever asked for a pid how it ended.

    While a fork is ``expected``, statuses of unknown pids are kept: the child may die before its pid is told.
    """

    def __init__(self) -> None:
        self._watched: dict[int, Callable[[int], None]] = {}
        self._early: dict[int, int] = {}
        self.expecting = False

    def watch(self, pid: int, ended: Callable[[int], None]) -> None:
        """Call ``ended(wait status)`` once ``pid`` has died (at once when it already has)."""
        if pid in self._early:
            ended(self._early.pop(pid))
        else:
            self._watched[pid] = ended
        if not self.expecting:
            self._early.clear()

    def forget(self, pid: int) -> None:
        """Nobody wants to know about ``pid`` any more."""
        self._watched.pop(pid, None)

    def reap(self) -> None:
        """Collect every dead child."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = self._watched.pop(pid, None)
            if ended is not None:
                ended(status)
            elif self.expecting:
                self._early[pid] = status


def exit_facts(status: int) -> Json:
    """A wait status as ``exit_code`` or ``signal``."""
    if os.WIFSIGNALED(status):
        return {"exit_code": None, "signal": os.WTERMSIG(status)}
    return {"exit_code": os.WEXITSTATUS(status), "signal": None}
