"""What a detached run leaves running: it stands still while the run's files are fetched, then goes on.

It stands still so that what is fetched is what was seen. Whatever it changes later the next run reports. It ends
with the sandbox, or with a run that is not detached or did not end by itself.
"""

from __future__ import annotations

import contextlib
import os
import signal

from . import system
from .interpreters import Interpreters, stop
from .loop import Loop
from .runs import Run

_SINKS = 64
_SINK_BYTES = 1 << 16
_SINK_PAUSE_S = 0.05
_STOP_S = 0.1
_DEATH_S = 5.0


class Remaining:
    """Processes that outlive their run, and the pipes that they may still write to."""

    def __init__(self, loop: Loop, interpreters: Interpreters) -> None:
        self._loop, self._interpreters = loop, interpreters
        self._held: list[int] = []
        self._sinks: list[int] = []
        self.any = False

    def leave(self, run: Run) -> tuple[bool, int]:
        """A run that leaves what it started has ended: hold all of that, and stop the kept interpreter.

        Gives whether that stopped, and how many processes were to be ended and live: none.
        """
        interpreters, source = self._interpreters, run.process
        interpreters.settle()
        over = run.interpreter if run.fresh else None
        if over is not None and not over.dead:
            over.kill()
            if not run.light:
                system.wait_for_death(over.pid, _DEATH_S)
        with interpreters.held():
            keep = interpreters.pids() | ({over.pid} if over is not None else set())
            self._held = system.stand_still(keep, interpreters.wake)
            self.any = bool(self._held or system.others(keep))
            if self.any and source is not None:
                self._swallow(source.stdout)
                self._swallow(source.stderr)
            kept = interpreters.kept
            if kept is None or not kept.ready:
                return False, 0
            interpreters.ignore(kept)
            return stop(kept, _STOP_S), 0

    def release(self) -> None:
        """Let what was held go on. What user code itself had stopped stays so."""
        held, self._held = self._held, []
        for pid in held:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)

    def gone(self) -> None:
        """All of it was killed."""
        self._held, self.any = [], False

    def mapped(self, root: str) -> set[int]:
        """Files below the root that any process has mapped shared."""
        device = os.stat(root).st_dev
        return {inode for pid in system.others(()) for inode in system.shared_inodes(pid, device)}

    def _swallow(self, output: int) -> None:
        """Take from now on, and drop, what is written to a run's output: nobody is to die of a pipe without a reader.

        At a pace, so that a flood costs next to nothing. The pipes of the newest 32 runs are kept.
        """
        fd = os.dup(output)
        self._sinks.append(fd)
        self._loop.watch(fd, lambda: self._drop(fd))
        if len(self._sinks) > _SINKS:
            self._close(self._sinks[0])

    def _drop(self, fd: int) -> None:
        try:
            data = os.read(fd, _SINK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(fd)
            return
        self._loop.unwatch(fd)
        self._loop.later(_SINK_PAUSE_S, lambda: self._again(fd))

    def _again(self, fd: int) -> None:
        if fd in self._sinks:
            self._loop.watch(fd, lambda: self._drop(fd))

    def _close(self, fd: int) -> None:
        self._loop.unwatch(fd)
        self._sinks.remove(fd)
        os.close(fd)
