"""The agent's child processes: the template, the interpreters it forks, and shells."""

from __future__ import annotations

import array
import json
import os
import signal
import socket
import struct
from collections.abc import Callable

from .loader import LOADER
from .protocol import MAX_MESSAGE, Json, ProtocolViolation, unpack_message

RUN_NUMBER = struct.Struct("!Q")


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
        self.dead = False
        self.buffer = bytearray()
        self.sock, self._peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        self.stdout, self._stdout_end = output_pipe()
        self.stderr, self._stderr_end = output_pipe()
        self.target = memfd("interrupt-target", RUN_NUMBER.pack(0))

    def ends(self) -> list[int]:
        """Descriptors for the forked process, in the order the template expects."""
        return [self._stdout_end, self._stderr_end, self._peer.fileno(), self.target]

    def close_ends(self) -> None:
        """After the fork: only the interpreter may hold its ends."""
        self._peer.close()
        os.close(self._stdout_end)
        os.close(self._stderr_end)

    def begin(self, number: int, request: Json, stdin: bytes) -> None:
        """Wake the interpreter and hand it a cell; the request itself travels in a memory file."""
        self.aim(0)
        fds = [memfd("request", json.dumps(request).encode()), memfd("stdin", stdin)]
        try:
            os.kill(self.pid, signal.SIGCONT)
            send_with_fds(self.sock, {"n": number}, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def aim(self, number: int) -> None:
        """Say which run the next SIGINT is meant for (0: none)."""
        os.pwrite(self.target, RUN_NUMBER.pack(number), 0)

    def messages(self) -> list[tuple[Json, list[bytes]]]:
        """Messages that have arrived; EOFError when the interpreter closed its end."""
        try:
            data = self.sock.recv(1 << 18)
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
            if size > MAX_MESSAGE:
                raise ProtocolViolation("interpreter message too large")
            if len(self.buffer) < 4 + size:
                break
            out.append(unpack_message(bytes(self.buffer[4 : 4 + size])))
            del self.buffer[: 4 + size]
        return out

    def close(self) -> None:
        """Close the agent's ends; the process itself is killed by whoever decided so."""
        self.sock.close()
        for fd in (self.stdout, self.stderr, self.target):
            os.close(fd)


class Template:
    """A process with the heavy libraries imported, from which interpreters are forked in milliseconds."""

    def __init__(self, python: str, bundle: bytes, config: Json) -> None:
        self.ready = False
        self.waiting: list[Interpreter] = []
        self.sent = 0
        self.sock, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.setblocking(False)
        source = memfd("bundle", len(bundle).to_bytes(4, "big") + bundle)
        null = os.open(os.devnull, os.O_WRONLY)
        os.set_inheritable(peer.fileno(), True)
        arguments = [python, "-P", "-s", "-c", LOADER, "foliobox_agent.template", json.dumps(config)]
        arguments.append(str(peer.fileno()))
        try:
            self.pid = os.posix_spawn(
                python,
                arguments,
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, source, 0),
                    (os.POSIX_SPAWN_DUP2, null, 1),
                    (os.POSIX_SPAWN_DUP2, null, 2),
                ],
                setsid=True,
            )
        finally:
            peer.close()
            os.close(source)
            os.close(null)

    def send_forks(self) -> None:
        """Ask for the interpreters that wait; each one's pid comes with an answer, in order."""
        if not self.ready:
            return
        os.kill(self.pid, signal.SIGCONT)
        for interpreter in self.waiting[self.sent :]:
            send_with_fds(self.sock, {"op": "fork"}, interpreter.ends())
            interpreter.close_ends()
            self.sent += 1

    def receive(self) -> Json:
        """One message of the template; EOFError when it is gone."""
        data = self.sock.recv(65536)
        if not data:
            raise EOFError
        body = json.loads(data)
        return body if isinstance(body, dict) else {}

    def close(self) -> None:
        """Forget the template's socket."""
        self.sock.close()


class Shell:
    """A bash process for one run."""

    def __init__(self, code: str, stdin: bytes, env: dict[str, str]) -> None:
        self.stdout, stdout_end = output_pipe()
        self.stderr, stderr_end = output_pipe()
        script, given = memfd("script", code.encode("utf-8", "surrogateescape")), memfd("stdin", stdin)
        try:
            self.pid = os.posix_spawn(
                "/bin/bash",
                ["bash", "/dev/fd/9"],
                {**os.environ, **env},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, given, 0),
                    (os.POSIX_SPAWN_DUP2, stdout_end, 1),
                    (os.POSIX_SPAWN_DUP2, stderr_end, 2),
                    (os.POSIX_SPAWN_DUP2, script, 9),
                ],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGINT],
            )
        finally:
            for fd in (stdout_end, stderr_end, script, given):
                os.close(fd)

    def close(self) -> None:
        """Close the reading ends."""
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
