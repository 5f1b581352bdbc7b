"""Keeps the template and the conversation's interpreter: forks, births, deaths, and the way back from each.

User code may kill or stop the template at any time. A new one is started once no user code runs that could
do it again, three times in a row at most until one has come up; one that was stopped is let go on.
Interpreters that were not born yet are asked for again.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from typing import Protocol

from . import system
from .children import Interpreter, Reaper, Template
from .loop import Loop
from .protocol import Json, ProtocolViolation

_MAX_FAILURES = 3
_SETTLE_S = 1.0
_DEATH_S = 0.05
_GAVE_UP = (70, 71)  # exit codes of an interpreter that finds its channel closed
_CLOSED = "it closed its control channel"


class Owner(Protocol):
    """Who is told what happens to interpreters."""

    @property
    def calm(self) -> bool:
        """Whether no user code runs."""

    def on_ready(self, interpreter: Interpreter) -> None:
        """It waits for its first cell."""

    def on_message(self, interpreter: Interpreter, body: Json, attachments: list[bytes]) -> None:
        """It said something; may raise KeyError, TypeError, ValueError when that makes no sense."""

    def on_broken(self, interpreter: Interpreter, why: str) -> None:
        """It cannot be talked to and is killed; ``on_death`` follows."""

    def on_death(self, interpreter: Interpreter, status: int) -> None:
        """Its process is gone."""

    def on_stillborn(self, interpreter: Interpreter) -> None:
        """It will never have a process."""


class Interpreters:
    """The template, the kept interpreter, and the ones that runs with ``fresh`` ask for."""

    def __init__(self, loop: Loop, reaper: Reaper, config: Json, bundle: bytes) -> None:
        self._loop, self._reaper = loop, reaper
        self._config, self._bundle = config, bundle
        self._failures = 0
        self.owner: Owner
        self.template: Template | None = None
        self.kept: Interpreter | None = None
        self.preload_failed: Json = {}
        self._held = False

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Start no process meanwhile: it would be killed as something that user code left."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def revive(self) -> None:
        """See that there is a kept interpreter again, unless that has failed too often or must wait."""
        if not self._held and not self.hopeless and self.owner.calm:
            self.keep_one()
            if self.template is None:
                self._start_template()
            elif not self.template.ready:
                self.template.wake()

    def keep_one(self) -> Interpreter:
        """The kept interpreter; a new one is forked when there is none."""
        if self.kept is None:
            self.kept = self.fork()
        elif not self.kept.pid and self.template is not None:
            self.template.wake()
        return self.kept

    @property
    def hopeless(self) -> bool:
        """Whether templates or interpreters have died several times without one coming up."""
        return self._failures >= _MAX_FAILURES

    def fork(self) -> Interpreter:
        """A new interpreter; it becomes ready later."""
        template = self.template or self._start_template()
        interpreter = Interpreter()
        template.unborn.append(interpreter)
        self._ask(template)
        return interpreter

    def for_one_run(self) -> Interpreter:
        """An interpreter that no other run will have: the kept one, as long as nothing ran in it, else a fork.

        Nobody waits for a fork then: the next one to keep is forked when the run has ended. One that is still being
        born will be there sooner than another that is asked for behind it.
        """
        kept = self.kept
        if kept is None or kept.used or kept.dead or kept.broken:
            return self.fork()
        if not kept.pid and self.template is not None:
            self.template.wake()
        self.kept = None
        return kept

    def discard(self, interpreter: Interpreter) -> None:
        """End an interpreter on purpose; nobody is told."""
        self.ignore(interpreter)
        if interpreter is self.kept:
            self.kept = None
        if interpreter.pid:
            interpreter.kill()
            self._reaper.watch(interpreter.pid, lambda _: None)
            interpreter.close()

    def forget(self, interpreter: Interpreter) -> None:
        """Nobody needs this interpreter any more; its process, if it has one, is dead or about to be."""
        self.ignore(interpreter)
        if self.template is not None:
            self.template.cancel(interpreter)
        interpreter.close()

    def listen(self, interpreter: Interpreter) -> None:
        """Read what an interpreter says."""
        gone = interpreter.closed or interpreter.dead or interpreter.broken
        if not gone and not self._loop.watching(interpreter.sock.fileno()):
            self._loop.watch(interpreter.sock.fileno(), lambda: self.hear(interpreter))

    def ignore(self, interpreter: Interpreter) -> None:
        """Do not read what an interpreter says."""
        if not interpreter.closed:
            self._loop.unwatch(interpreter.sock.fileno())

    def hear(self, interpreter: Interpreter) -> None:
        """Handle what an interpreter has said; one that breaks the protocol is killed."""
        try:
            for body, attachments in interpreter.messages():
                if body["op"] == "ready" and not interpreter.ready:
                    interpreter.ready = True
                    self._failures = 0
                    self.owner.on_ready(interpreter)
                else:
                    self.owner.on_message(interpreter, body, attachments)
        except EOFError:
            self._closed(interpreter)
        except (ProtocolViolation, KeyError, TypeError, ValueError, RecursionError) as error:
            self._break(interpreter, f"garbage on its control channel: {error!r}"[:200])

    def settle(self) -> None:
        """See every fork under way through, so that no newborn is taken for a leftover of user code.

        A template that does not answer within a second (stopped again and again, say) is killed.
        """
        template = self.template
        deadline = time.monotonic() + _SETTLE_S
        while template is not None and not template.dead and template.busy:
            if time.monotonic() > deadline:
                self._kill_template(template)
                return
            if select.select([template.sock], [], [], 0.05)[0]:
                self._on_template(template)
            else:
                self._reaper.reap()
                if not template.dead:
                    self._ask(template)
            if template is not self.template:
                return

    def pids(self) -> set[int]:
        """Processes that belong here: template, kept interpreter, and helpers of a template that is starting."""
        keep = set()
        if self.kept is not None and self.kept.pid:
            keep.add(self.kept.pid)
        template = self.template
        if template is not None:
            keep.add(template.pid)
            if not template.ready:
                keep.update(system.children(template.pid))
        return keep

    def wake(self) -> None:
        """Let what belongs here go on after all were stopped; an interpreter that waits for cells stays stopped."""
        kept = self.kept
        for pid in self.pids() - {kept.pid if kept is not None and kept.ready else 0}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)

    # -- what happens ----------------------------------------------------------------------------------------

    def _start_template(self) -> Template:
        template = Template(self._config["python"], self._bundle, self._config)
        self.template = template
        self._loop.watch(template.sock.fileno(), lambda: self._on_template(template))
        self._reaper.watch(template.pid, lambda _: self._on_template_death(template))
        return template

    def _ask(self, template: Template) -> None:
        try:
            template.ask()
        except OSError:
            self._kill_template(template)
        self._reaper.expecting = template.busy

    def _on_template(self, template: Template) -> None:
        """The template is ready, has forked an interpreter, or is gone."""
        try:
            body = template.receive()
        except BlockingIOError:
            return
        except (OSError, EOFError, ValueError):
            self._kill_template(template)
            return
        if body.get("op") == "ready":
            template.ready = True
            self.preload_failed = body.get("failed") or {}
            self._ask(template)
            return
        interpreter = template.born(int(body.get("pid", 0)))
        if interpreter is not None and interpreter.pid > 0:
            self._reaper.watch(interpreter.pid, lambda status: self._on_death(interpreter, status))
            self._reaper.expecting = template.busy
            self.listen(interpreter)
        elif interpreter is not None:  # there was no room for it: user code holds all processes that may be
            self._reaper.expecting = template.busy
            self._failures += 1
            self._stillborn(interpreter)
            self.revive()
        else:
            self._kill_template(template)

    def _kill_template(self, template: Template) -> None:
        """A template that does not do its work: its death is handled when it is waited for."""
        self._loop.unwatch(template.sock.fileno())
        template.kill()

    def _on_template_death(self, template: Template) -> None:
        self._loop.unwatch(template.sock.fileno())
        template.dead = True
        template.close()
        if self.template is template:
            self.template = None
        self._failures += 1
        unborn = list(template.unborn)
        template.unborn.clear()
        for interpreter in unborn:
            self._stillborn(interpreter)
        self.revive()

    def _stillborn(self, interpreter: Interpreter) -> None:
        interpreter.dead = True
        interpreter.close()
        if interpreter is self.kept:
            self.kept = None
        self.owner.on_stillborn(interpreter)

    def _on_death(self, interpreter: Interpreter, status: int) -> None:
        interpreter.dead = True
        if interpreter.broken and os.WIFEXITED(status) and os.WEXITSTATUS(status) in _GAVE_UP:
            self.owner.on_broken(interpreter, _CLOSED)
        self.ignore(interpreter)
        if not interpreter.ready:
            self._failures += 1
        if interpreter is self.kept:
            self.kept = None
        self.owner.on_death(interpreter, status)

    def _closed(self, interpreter: Interpreter) -> None:
        """The end of its channel comes before its death is known; only one that lives on has closed it itself.

        A script has no use for it: its death alone says how it ended.
        """
        if interpreter.script:
            self.ignore(interpreter)
            return
        interpreter.broken = True
        self.ignore(interpreter)
        self._loop.later(_DEATH_S, lambda: self._judge(interpreter))

    def _judge(self, interpreter: Interpreter) -> None:
        """A busy host may take long over a death: it is waited for as long as the kernel is at it."""
        if not interpreter.dead and system.dying(interpreter.pid):
            self._loop.later(_DEATH_S, lambda: self._judge(interpreter))
        elif not interpreter.dead:
            self._break(interpreter, _CLOSED)

    def _break(self, interpreter: Interpreter, why: str) -> None:
        interpreter.broken = True
        self.ignore(interpreter)
        self.owner.on_broken(interpreter, why)
        interpreter.kill()


def stop(interpreter: Interpreter, limit_s: float = 0.5) -> bool:
    """Stop an interpreter between runs; False when it died or did not stop."""
    return system.stop_and_wait(interpreter.pid, limit_s)


def mapped_inodes(interpreter: Interpreter, root: str) -> set[int]:
    """Files below the root's file system that an interpreter has mapped shared."""
    return system.shared_inodes(interpreter.pid, os.stat(root).st_dev)
