"""The loop of a forked interpreter: takes a cell, runs it with everything put right, reports how it ended.

Whatever it says can be forged by the code it runs; the agent and the host treat it so. SIGINT raises
KeyboardInterrupt only while a cell runs. Functions that the loop needs are bound here before any user code
runs, so that code which replaces ``open`` or ``json.dumps`` breaks only itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import signal
import sys
from importlib.machinery import FileFinder
from typing import Any

from . import script
from .channel import Channel, Interrupts
from .leftovers import ModuleWatch, reap_children, stop_timers
from .script import exit_status
from .tracebacks import describe_error

_open, _close, _dup2, _chdir, _getpid, _exit = open, os.close, os.dup2, os.chdir, os.getpid, os._exit
_fstat, _open_file = os.fstat, os.open
_dup, _signal, _mask = os.dup, signal.signal, signal.pthread_sigmask
_settrace, _setprofile = sys.settrace, sys.setprofile
_MIN_RECURSION = 1000


class Streams:
    """Descriptors 0-2 and the sys objects over them, put right again before every cell."""

    def __init__(self, stdout: int, stderr: int) -> None:
        # High up, where code that closes "all" descriptors from 3 to 100 or so does not reach them.
        above = min(900, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 50)
        self._spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in (stdout, stderr)]
        self._kinds = [os.fstat(fd)[1:3] for fd in self._spare]
        _close(stdout)
        _close(stderr)
        self.out: Any = None
        self.err: Any = None

    def prepare(self, stdin: int) -> None:
        """Give the next cell its input, and the output back to it."""
        if stdin:
            _dup2(stdin, 0)
            _close(stdin)
        self.check()
        for number, spare in enumerate(self._spare, 1):
            _dup2(spare, number)
        if self.out is None or self.out.closed or self.err.closed:
            self.out = _open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
            self.err = _open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        sys.stdin = _open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout, sys.stderr = self.out, self.err
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, self.out, self.err  # type: ignore[misc]

    def check(self) -> None:
        """OSError when user code closed the spare descriptors: there is no way back then."""
        for spare, kind in zip(self._spare, self._kinds, strict=True):
            if _fstat(spare)[1:3] != kind:
                raise OSError("the output's descriptor was replaced")

    def make_room(self) -> None:
        """See that one descriptor is free for the next cell's input, even if user code holds all there are."""
        try:
            _close(_dup(self._spare[0]))
        except OSError:
            with contextlib.suppress(OSError):
                _close(0)

    def flush(self) -> None:
        """Whatever user code left of them."""
        for stream in {id(s): s for s in (sys.stdout, sys.stderr, self.out, self.err)}.values():
            with contextlib.suppress(Exception):
                stream.flush()


class CellRunner:
    """Everything that a forked interpreter needs to run cells one after another."""

    def __init__(self, shell: Any, streams: Streams, channel: Channel, interrupts: Interrupts) -> None:
        self.shell, self.streams, self.channel, self.interrupts = shell, streams, channel, interrupts
        self.root: str = shell.foliobox_root
        self.pid = _getpid()
        self.modules = ModuleWatch(self.root)
        self.failed: BaseException | None = None
        os.register_at_fork(after_in_child=self._in_child)

    def _in_child(self) -> None:
        """A child that user code forked shows nothing and keeps no descriptor of ours but its output."""
        self.channel.abandon()

    def serve_one(self) -> None:
        """Wait for a cell, run it, say how it ended."""
        request, code, stdin = self.channel.receive()
        number: int = request["n"]
        env: dict[str, str] = request["env"]
        self._put_right(stdin)
        before = {name: os.environ.get(name) for name in env}
        os.environ.update(env)
        if request.get("script"):
            script.become(code, self.shell, lambda status: self._tell_end(number, status))
        self.channel.number = number
        try:
            result = self._run(code.decode("utf-8", "replace"), number)
        finally:
            if _getpid() != self.pid:
                self._end_child()
            _settrace(None)
            _setprofile(None)
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        self.streams.flush()
        self._put_away()
        self.channel.number = 0
        self.channel.send({"op": "done", "n": number, **result})

    def _tell_end(self, number: int, status: int) -> None:
        """A script has come to its end. Its death says the same, later: what its memory takes to be freed."""
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        end = {"op": "done", "n": number, "status": "exit", "exit_code": status, "error": None, "peak_kib": peak}
        with contextlib.suppress(Exception):
            self.channel.send(end)

    def warm_up(self) -> None:
        """Go once through all that a cell goes through, with none: its pages are the interpreter's own from then on.

        Done while nobody waits. A first cell would pay for them otherwise, on gVisor with most of its time.
        """
        self._put_right(_open_file(os.devnull, os.O_RDONLY))
        self._run("pass", 0, recorded=False)
        self.streams.flush()
        self._put_away()

    def _put_right(self, stdin: int) -> None:
        reap_children()
        self.streams.prepare(stdin)
        _signal(signal.SIGINT, self.interrupts)
        _mask(signal.SIG_UNBLOCK, (signal.SIGINT,))
        with contextlib.suppress(OSError):
            _chdir(self.root)
        if self.root not in sys.path:
            sys.path.append(self.root)
        for folder, finder in list(sys.path_importer_cache.items()):
            if folder.startswith(self.root) and isinstance(finder, FileFinder):
                finder.invalidate_caches()  # doing so for all would unshare many pages of the template's memory
        self.modules.forget_changed()

    def _put_away(self) -> None:
        stop_timers()
        self.streams.check()
        self.streams.make_room()
        self.modules.note_new()
        if sys.getrecursionlimit() < _MIN_RECURSION:
            sys.setrecursionlimit(_MIN_RECURSION)

    def _run(self, code: str, number: int, *, recorded: bool = True) -> dict[str, Any]:
        error: BaseException | None
        try:
            self.interrupts.active = number
            result = self.shell.run_cell(code, store_history=recorded)
            if _getpid() == self.pid:
                self.shell.foliobox_figures.flush(self.shell.display_pub.publish)
            self.interrupts.disarm()
            error = result.error_before_exec or result.error_in_exec
        except BaseException as escaped:
            self.interrupts.disarm()
            error = escaped
        self.failed = error
        if error is None:
            return {"status": "ok", "exit_code": 0, "error": None}
        if isinstance(error, SystemExit):
            return {"status": "exit", "exit_code": exit_status(error), "error": None}
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
        return {"status": status, "exit_code": 1, "error": describe_error(error)}

    def _end_child(self) -> None:
        """A process that the cell forked came to the cell's end: it ends here, as a forked script would."""
        code = 70
        try:
            error = self.failed
            code = 0 if error is None else exit_status(error) if isinstance(error, SystemExit) else 1
            if code and not isinstance(error, SystemExit) and error is not None:
                sys.stderr.write(describe_error(error)["traceback"])
            self.streams.flush()
        finally:
            _exit(code)


def run_forever(shell: Any, stdout: int, stderr: int, control: int, target: int, taken: int) -> None:
    """The loop of a forked interpreter; never returns."""
    code = 70
    try:
        streams = Streams(stdout, stderr)
        interrupts = Interrupts(target)
        channel = Channel(control, taken, interrupts, streams.flush)
        streams.prepare(os.open(os.devnull, os.O_RDONLY))
        signal.signal(signal.SIGINT, interrupts)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        shell.displayhook.channel = shell.display_pub.channel = channel
        runner = CellRunner(shell, streams, channel, interrupts)
        _reseed()
        runner.warm_up()
        channel.send({"op": "ready"})
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                runner.serve_one()
    except EOFError:
        code = 0
    finally:
        _exit(code)


def _reseed() -> None:
    """Forked interpreters must not share the template's random state."""
    import random

    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
