"""Runs cells: hands them to an interpreter or a shell, forwards what they say, and cleans up after them."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from . import system
from .children import Interpreter, Reaper, Shell, exit_facts
from .interpreters import Interpreters, mapped_inodes, stop
from .link import Link, Refused
from .looking import Look
from .loop import Loop
from .marks import Mark
from .outputs import Stream
from .protocol import MAX_NESTING, Json, too_deep
from .remaining import Remaining
from .report import split
from .runs import Run
from .tree import Tree

KILL_LIMIT_S = 5.0  # all are stopped and cannot fork: what takes time is 250 processes dying on a busy host
START_LIMIT_S = 60.0
INTERRUPT_KILL_S = 5.0
TIMEOUT_KILL_S = 0.8
_SECOND_SIGNAL_S = 1.0
_DRAIN_PAUSE_S = 0.02
_STOP_S = 0.1
_CROWD = 64  # processes
_LIGHT_KIB = 512 << 10


class Execution:
    """At most one run at a time, and the last one until the host has acknowledged it."""

    def __init__(
        self, loop: Loop, link: Link, tree: Tree, reaper: Reaper, interpreters: Interpreters, mark: Mark
    ) -> None:
        self._loop, self._link, self._tree = loop, link, tree
        self._reaper, self._interpreters, self._mark = reaper, interpreters, mark
        self._look = Look(tree)
        self._remaining = Remaining(loop, interpreters)
        self._count = 0
        self.run: Run | None = None
        interpreters.owner = self
        link.requests |= {
            "run": self._do_run,
            "interrupt": self._do_interrupt,
            "reset": self._do_reset,
            "ack": self._do_ack,
            "resume": self._do_resume,
        }

    def report(self) -> Json | None:
        """What a host that attaches is told about the run going on, or not yet acknowledged."""
        run = self.run
        if run is None:
            return None
        run.detach()
        return {
            "run": run.id, "seq": run.seq, "acknowledged": run.acknowledged, "note": run.note, "done": run.done,
            "interpreter": run.state,
        }  # fmt: skip

    @property
    def calm(self) -> bool:
        """Whether no user code runs."""
        return self.run is None or self.run.done or self.run.began is None

    def pump(self) -> None:
        """Read the run's processes again once the host has taken what waited; call it after every turn."""
        run = self.run
        if run is None or run.done or run.began is None:
            return
        paused = run.backlogged
        for fd, stream in run.outputs():
            if paused:
                self._loop.unwatch(fd)
            elif not self._loop.watching(fd):
                self._loop.watch(fd, lambda f=fd, s=stream: self._read_output(run, f, s))  # type: ignore[misc]
        if run.interpreter is not None:
            if paused:
                self._interpreters.ignore(run.interpreter)
            else:
                self._interpreters.listen(run.interpreter)

    def _read_output(self, run: Run, fd: int, stream: Stream) -> None:
        if not run.read(fd, stream):
            self._loop.unwatch(fd)

    # -- requests --------------------------------------------------------------------------------------------

    def _do_run(self, body: Json, attachments: list[bytes]) -> Json:
        """Start a run (code, then maybe stdin attached); its events come on the channel that the host named."""
        self._refuse_if_busy()
        self._mark.take(body)
        code, *rest = attachments
        stdin = rest[0] if rest else b""
        self._count += 1
        run = Run(body, code, self._count, self._link.outbox)
        if not (bare := bool(body.get("bare"))):
            self._tree.prepare()
        os.chdir(self._tree.root)
        self._remaining.release()
        self._look.begin(self._remaining.any, bare)
        self._watch_writes()
        if body["language"] == "bash":
            run.shell = Shell(code, stdin, run.env)
            self.run = run
            self._begin(run, "new")
            self._reaper.watch(run.shell.pid, lambda status: self._shell_ended(run, status))
            return {}
        run.interpreter = self._interpreters.for_one_run() if run.fresh else self._interpreters.keep_one()
        run.stdin = stdin
        self.run = run
        run.timers.append(self._loop.later(START_LIMIT_S, lambda: self._give_up(run)))
        self._begin_when_ready(run)
        return {}

    def _do_interrupt(self, body: Json, _: list[bytes]) -> Json:
        """Interrupt the named run, if it is the one going on."""
        run = self.run
        if run is None or run.done or run.id != body["run"]:
            return {"running": False}
        self._stop(run, "interrupted", INTERRUPT_KILL_S)
        return {"running": True}

    def _do_reset(self, _: Json, __: list[bytes]) -> Json:
        """A new interpreter; files stay."""
        self._refuse_if_busy()
        self._interpreters.settle()
        kept = self._interpreters.kept
        if kept is not None and kept.used:
            self._interpreters.discard(kept)
        self._quiet()
        self._interpreters.keep_one()
        return {}

    def _do_ack(self, body: Json, _: list[bytes]) -> None:
        """The host has seen a run's events up to a number; ``final``: its result is stored, and so are its files."""
        run = self.run
        self._mark.take(body)
        if run is not None and run.id == body["run"]:
            run.acknowledge(body["seq"], body.get("note"))
            if run.done and body.get("final"):
                self._link.outbox.close(run.channel)
                self._remaining.release()
                self.run = None

    def _do_resume(self, body: Json, _: list[bytes]) -> Json:
        """Another host takes over the run going on."""
        run = self.run
        if run is None or run.id != body["run"]:
            raise Refused("unknown_run", "that run is not here")
        run.resend(body["channel"], body["after"])
        return {"seq": run.seq, "done": run.done}

    def _refuse_if_busy(self) -> None:
        if self.run is not None and not self.run.done:
            raise Refused("busy", f"run {self.run.id} is going on")

    # -- begin and stop --------------------------------------------------------------------------------------

    def _watch_writes(self) -> None:
        """Empty the kernel's queue of writes now and then, so that it does not overflow."""
        if self._look.writes.works:
            self._loop.watch(self._look.writes.fd, self._drain_writes)

    def _drain_writes(self) -> None:
        self._look.writes.drain()
        self._loop.unwatch(self._look.writes.fd)
        run = self.run
        if run is not None and not run.done:
            run.timers.append(self._loop.later(_DRAIN_PAUSE_S, self._watch_writes))

    def _begin_when_ready(self, run: Run) -> None:
        """Hand the cell to its interpreter as soon as that is up."""
        interpreter = run.interpreter
        if interpreter is None or not interpreter.ready or run.began is not None:
            return
        state = "kept" if interpreter.used else "new"
        interpreter.used = True
        stdin, run.stdin = run.stdin, b""
        self._begin(run, state)
        try:
            interpreter.begin(run.number, run.code, run.env, stdin, run.script)
        except OSError as error:
            self.on_broken(interpreter, f"not reachable: {error}")
            interpreter.kill()
        run.code = b""

    def _begin(self, run: Run, state: str) -> None:
        """The cell runs from now on."""
        run.began, run.state = time.monotonic(), state
        run.emit("started", {"interpreter": state})
        run.timers.append(self._loop.later(run.timeout_s, lambda: self._stop(run, "timeout", TIMEOUT_KILL_S)))

    def _give_up(self, run: Run) -> None:
        if run.began is None:
            self._finish(run, {"failure": "the interpreter did not start", "unusable": True})

    def _stop(self, run: Run, reason: str, kill_after_s: float) -> None:
        """SIGINT now and after 1 s, SIGKILL at last; the first reason is the one that is told.

        A crowd gets no time to obey: ending it takes long enough, and it grows meanwhile.
        """
        if run is not self.run or run.done:
            return
        first = run.stopped_by is None
        run.stopped_by = run.stopped_by or reason
        if run.began is None:
            self._finish(run, {})
            return
        if reason == "timeout" and self._crowded():
            self._kill(run)
            return
        if first:
            self._signal(run)
            run.timers.append(self._loop.later(_SECOND_SIGNAL_S, lambda: self._signal(run)))
        run.timers.append(self._loop.later(kill_after_s, lambda: self._kill(run)))

    def _crowded(self) -> bool:
        """Many processes, dead ones among them: of a bomb whose parents end at once, few live at any moment."""
        return len(system.others(self._interpreters.pids(), dead=True)) > _CROWD

    def _signal(self, run: Run) -> None:
        """SIGINT for the run's process group, stopped or not; an interpreter obeys only if the run is its own."""
        process = run.process
        if not run.done and not run.killed and process is not None and process.pid and not process.dead:
            if run.interpreter is not None:
                run.interpreter.aim(run.number)
            for number in (signal.SIGINT, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)

    def _kill(self, run: Run) -> None:
        """The run did not obey. What it has started stands still meanwhile: dying takes processor time, too."""
        process = run.process
        if not run.done and process is not None and process.pid and not process.dead:
            run.killed = True
            system.stop_all()
            self._interpreters.wake()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)

    # -- what interpreters do --------------------------------------------------------------------------------

    def on_ready(self, interpreter: Interpreter) -> None:
        """An interpreter waits for its first cell: here it is, or it is stopped until there is one."""
        run = self.run
        if run is not None and run.interpreter is interpreter and not run.done:
            self._begin_when_ready(run)
        else:
            self._interpreters.ignore(interpreter)
            stop(interpreter)
            self._link.say({"op": "ready", "failed": self._interpreters.preload_failed})

    def on_message(self, interpreter: Interpreter, body: Json, attachments: list[bytes]) -> None:
        """``display`` and ``done`` of the run an interpreter has; anything else is of no interest."""
        if too_deep(body, MAX_NESTING + 2):
            raise ValueError("nested too deep")
        run = self.run
        mine = run is not None and run.interpreter is interpreter and not run.done and body.get("n") == run.number
        if body["op"] == "display":
            if mine and run is not None:
                run.drain()
                names = ("kind", "data", "binary", "texts", "metadata", "display_id")
                run.show({name: body[name] for name in names}, tuple(attachments))
            interpreter.took_display()
        elif body["op"] == "done" and mine and run is not None:
            facts = {name: body.get(name) for name in ("status", "exit_code", "error")}
            run.light = type(peak := body.get("peak_kib")) is int and peak < _LIGHT_KIB
            self._finish(run, {"signal": None, **facts})

    def on_broken(self, interpreter: Interpreter, why: str) -> None:
        """The death that follows ends the run; remember why."""
        run = self.run
        if run is not None and run.interpreter is interpreter:
            run.facts["failure"] = why

    def on_death(self, interpreter: Interpreter, status: int) -> None:
        """An interpreter is gone, by its own doing or ours."""
        run = self.run
        if run is not None and run.interpreter is interpreter and not run.done:
            self._last_words(run, interpreter)
            self._finish(run, {**exit_facts(status), **run.facts})
            return
        if run is None or run.interpreter is not interpreter or run.closed:
            interpreter.close()
        if run is None or run.done:
            self._interpreters.revive()

    def _last_words(self, run: Run, interpreter: Interpreter) -> None:
        """What an interpreter showed just before it died."""
        with contextlib.suppress(Exception):
            for body, attachments in interpreter.messages():
                if body.get("op") == "display":
                    self.on_message(interpreter, body, attachments)

    def on_stillborn(self, interpreter: Interpreter) -> None:
        """The template died first: ask the next one, unless that has happened too often."""
        run = self.run
        if run is None or run.interpreter is not interpreter or run.done:
            return
        if self._interpreters.hopeless:
            run.interpreter = None
            self._finish(run, {"failure": "interpreters cannot be started", "unusable": True})
        else:
            run.interpreter = self._interpreters.fork() if run.fresh else self._interpreters.keep_one()

    def _shell_ended(self, run: Run, status: int) -> None:
        if run.shell is not None:
            run.shell.dead = True
        self._finish(run, exit_facts(status))

    # -- the end ---------------------------------------------------------------------------------------------

    def _finish(self, run: Run, facts: Json) -> None:
        """The cell ended: kill what it left, stop the interpreter, look at the files, tell the host."""
        if run.done or run is not self.run:
            return
        run.done = True
        duration = run.elapsed_ms()
        self._let_go(run)
        run.drain()
        stopped, survivors = self._remaining.leave(run) if run.leaves else self._quiet()
        run.drain()
        outputs = run.finish_outputs()
        if run.shell is not None:
            run.shell.close()
        elif run.interpreter is not None and (run.interpreter.dead or run.fresh):
            self._interpreters.forget(run.interpreter)
        run.closed = True
        kept = self._interpreters.kept
        lost = run.shell is None and not run.fresh and (run.interpreter is None or run.interpreter is not kept)
        parts, report = split(self._changes(stopped))
        along = {} if parts or survivors else self._tree.small(report)
        for part in parts:
            run.emit("changes", part)
        run.emit("done", {
            **facts,
            "stopped_by": run.stopped_by,
            "duration_ms": duration,
            "interpreter": "lost" if lost else "kept",
            "survivors": survivors,
            **outputs,
            "changes": report,
            "contents": list(along),
        }, tuple(along.values()))  # fmt: skip
        self._interpreters.revive()

    def _let_go(self, run: Run) -> None:
        for timer in run.timers:
            self._loop.cancel(timer)
        run.timers.clear()
        for fd, _ in run.outputs():
            self._loop.unwatch(fd)
        if self._look.writes.works:
            self._loop.unwatch(self._look.writes.fd)

    def _quiet(self) -> tuple[bool, int]:
        """Stop the kept interpreter and kill everything else; gives whether it stopped, and how many survived."""
        self._interpreters.settle()
        with self._interpreters.held():
            self._remaining.gone()
            return self._stop_and_kill()

    def _stop_and_kill(self) -> tuple[bool, int]:
        kept = self._interpreters.kept
        keep = self._interpreters.pids()
        stopped = False
        if kept is not None and kept.ready:
            self._interpreters.ignore(kept)
            stopped = stop(kept, _STOP_S)
        killed, survivors = system.kill_all(keep, self._reaper.reap, KILL_LIMIT_S)
        if killed:
            self._interpreters.wake()
        if kept is not None and kept.ready and not kept.dead and (killed or not stopped):
            # A process that was just killed may have sent it SIGCONT all the time, or after it was stopped.
            stopped = stop(kept, KILL_LIMIT_S)
            if not stopped:
                kept.kill()
        return stopped, survivors

    def _changes(self, stopped: bool) -> Json:
        """What the run did to the files."""
        kept = self._interpreters.kept
        if self._remaining.any:
            return self._look.changes(lambda: self._remaining.mapped(self._tree.root))
        if not stopped or kept is None:
            return self._look.changes(None)
        return self._look.changes(lambda: mapped_inodes(kept, self._tree.root))
