"""The agent: PID 1 of a sandbox; speaks the framed stream on its stdio and owns everything inside.

One thread, one loop over readable descriptors and due timers. It reads nothing that user code wrote
except as bounded, validated messages, and runs no user code itself.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import select
import selectors
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from . import system
from .children import Interpreter, Reaper, Shell, Template, exit_facts
from .protocol import (
    ABORT,
    CONTROL,
    CREDIT,
    DATA,
    END,
    MESSAGE,
    PART,
    Assembler,
    Decoder,
    Frame,
    Json,
    Outbox,
    ProtocolViolation,
)
from .runs import Run
from .tree import Tree

KILL_LIMIT_S = 2.0
TEMPLATE_LIMIT_S = 60.0
WRITE_CHUNK = 1 << 18
Handler = Callable[[], None]


class Refused(Exception):
    """A request of the host cannot be done; ``code`` and the text go back in the reply."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class _Upload:
    """A file coming in on a channel."""

    def __init__(self, body: Json, fd: int, part: str) -> None:
        self.body, self.fd, self.part = body, fd, part
        self.error = ""


class Agent:
    """State of one sandbox and the loop that serves it."""

    def __init__(self, config: Json, bundle: bytes) -> None:
        self.config, self.bundle = config, bundle
        self.tree = Tree(config["root"])
        self.selector = selectors.DefaultSelector()
        self.timers: list[tuple[float, int, Handler]] = []
        self.outbox, self.decoder, self.assembler = Outbox(), Decoder(), Assembler()
        self.unsent = b""
        self.writing = False
        self.uploads: dict[int, _Upload] = {}
        self.reaper = Reaper()
        self.template: Template | None = None
        self.template_failures = 0
        self.kept: Interpreter | None = None
        self.run: Run | None = None
        self.run_count = 0
        self.mark: Any = None
        self._timer_count = 0

    # -- loop ------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Run until the host closes the stream."""
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for fd in (0, 1):
            os.set_blocking(fd, False)
        self.watch(0, self.read_host)
        self.watch(wake_read, lambda: self.on_child(wake_read))
        self.start_template()
        self.kept = self.fork()
        while True:
            self.flush()
            for key, events in self.selector.select(self.next_timer()):
                if events and key.fileobj in self.selector.get_map():
                    key.data()
            self.fire_timers()

    def watch(self, fd: int, handler: Handler, events: int = selectors.EVENT_READ) -> None:
        """Call ``handler`` whenever ``fd`` is ready."""
        try:
            self.selector.modify(fd, events, handler)
        except KeyError:
            self.selector.register(fd, events, handler)

    def unwatch(self, fd: int) -> None:
        """Stop watching ``fd``."""
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(fd)

    def later(self, seconds: float, action: Handler) -> None:
        """Call ``action`` after a while; actions check for themselves whether they still apply."""
        self._timer_count += 1
        heapq.heappush(self.timers, (time.monotonic() + seconds, self._timer_count, action))

    def next_timer(self) -> float | None:
        """Seconds until the next timer."""
        return max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else None

    def fire_timers(self) -> None:
        """Run what is due."""
        while self.timers and self.timers[0][0] <= time.monotonic():
            heapq.heappop(self.timers)[2]()

    def flush(self) -> None:
        """Write as much as the host takes now."""
        run = self.run
        while True:
            if not self.unsent:
                self.unsent = self.outbox.pull(WRITE_CHUNK)
            if not self.unsent:
                break
            try:
                self.unsent = self.unsent[os.write(1, self.unsent) :]
            except BlockingIOError:
                break
            except OSError:
                self.leave()
        if bool(self.unsent) != self.writing:
            self.writing = not self.writing
            if self.writing:
                self.watch(1, self.flush, selectors.EVENT_WRITE)
            else:
                self.unwatch(1)
        if run is not None and not run.done:
            self.watch_outputs(run)

    def leave(self) -> None:
        """The host is gone: end everything."""
        system.kill_all((), self.reaper.reap, KILL_LIMIT_S)
        os._exit(0)

    # -- frames ----------------------------------------------------------------------------------------------

    def read_host(self) -> None:
        """Handle what the host sent."""
        try:
            data = os.read(0, 1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.leave()
        for frame in self.decoder.feed(data):
            try:
                self.on_frame(frame)
            except ProtocolViolation as error:
                self.say({"op": "violation", "detail": str(error)})

    def on_frame(self, frame: Frame) -> None:
        """Sort a frame to whom it belongs; frames of another epoch than the host's are old ones."""
        if frame.kind in (MESSAGE, PART):
            whole = self.assembler.add(frame)
            if whole is not None:
                body, attachments = whole
                if body.get("op") == "hello":
                    self.on_hello(frame.epoch)
                elif frame.epoch == self.outbox.epoch:
                    self.on_request(body, attachments)
        elif frame.epoch != self.outbox.epoch:
            return
        elif frame.kind == CREDIT:
            self.outbox.credit(frame.channel, int.from_bytes(frame.payload, "big"))
        elif frame.kind == DATA:
            self.on_upload_data(frame)
        elif frame.kind == END:
            self.on_upload_end(frame.channel)
        elif frame.kind == ABORT:
            self.outbox.close(frame.channel)
            self.drop_upload(frame.channel)

    def say(self, body: Json) -> None:
        """Send a control message."""
        self.outbox.message(CONTROL, body)

    def on_hello(self, epoch: int) -> None:
        """A host attached: forget what the last one had under way, tell what is going on."""
        for channel in list(self.uploads):
            self.drop_upload(channel)
        self.unsent = b""
        self.assembler = Assembler()
        self.outbox.reset(epoch)
        run = self.run
        self.say({
            "op": "welcome",
            "ready": self.kept is not None and self.kept.ready,
            "mark": self.mark,
            "run": None if run is None else {"run": run.id, "seq": run.seq, "done": run.done},
        })  # fmt: skip

    def on_request(self, body: Json, attachments: list[bytes]) -> None:
        """Do what the host asks; every request with an ``id`` gets exactly one reply."""
        handlers: dict[str, Callable[[Json, list[bytes]], Json | None]] = {
            "ping": lambda *_: {},
            "mark": self.do_mark,
            "put": self.do_put,
            "upload": self.do_upload,
            "remove": self.do_remove,
            "clear": self.do_clear,
            "get": self.do_get,
            "run": self.do_run,
            "interrupt": self.do_interrupt,
            "reset": self.do_reset,
            "ack": self.do_ack,
            "resume": self.do_resume,
        }
        reply: Json | None
        try:
            handler = handlers.get(str(body.get("op")))
            if handler is None:
                raise Refused("unknown_op", f"no such request: {body.get('op')!r}")
            reply = handler(body, attachments)
        except Refused as refusal:
            reply = {"ok": False, "code": refusal.code, "detail": refusal.detail}
        except OSError as error:
            reply = {"ok": False, "code": "os_error", "errno": error.errno, "detail": error.strerror or str(error)}
        except (KeyError, TypeError, ValueError) as error:
            reply = {"ok": False, "code": "bad_request", "detail": repr(error)}
        if reply is not None and "id" in body:
            self.say({"op": "reply", "id": body["id"], "ok": True, **reply})

    # -- files -----------------------------------------------------------------------------------------------

    def do_mark(self, body: Json, _: list[bytes]) -> Json:
        """Keep a note for whichever host comes next (which version the files are of)."""
        self.mark = body["mark"]
        return {}

    def do_put(self, body: Json, attachments: list[bytes]) -> Json:
        """Many small files, links and empty folders in one message."""
        contents = iter(attachments)
        for item in body["files"]:
            if "link" in item:
                self.tree.link(item["path"], item["link"])
            elif item.get("folder"):
                self.tree.folder(item["path"])
            else:
                fd, part = self.tree.begin()
                try:
                    _write_all(fd, next(contents))
                    self.tree.place(part, item["path"], item["mode"], item["modified_ns"])
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(part)
                    raise
                finally:
                    os.close(fd)
        return {}

    def do_upload(self, body: Json, _: list[bytes]) -> None:
        """One large file; its bytes follow on a channel, the reply comes after their end."""
        fd, part = self.tree.begin()
        self.uploads[body["channel"]] = _Upload(body, fd, part)

    def on_upload_data(self, frame: Frame) -> None:
        """A piece of a large file."""
        upload = self.uploads.get(frame.channel)
        self.outbox.grant(frame.channel, len(frame.payload))
        if upload is not None and not upload.error:
            try:
                _write_all(upload.fd, frame.payload)
            except OSError as error:
                upload.error = error.strerror or str(error)

    def on_upload_end(self, channel: int) -> None:
        """A large file is complete."""
        upload = self.uploads.pop(channel, None)
        if upload is None:
            return
        os.close(upload.fd)
        body = upload.body
        reply: Json = {"ok": True}
        try:
            if upload.error:
                raise OSError(upload.error)
            self.tree.place(upload.part, body["path"], body["mode"], body["modified_ns"])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(upload.part)
            reply = {"ok": False, "code": "os_error", "detail": error.strerror or str(error)}
        self.say({"op": "reply", "id": body["id"], **reply})

    def drop_upload(self, channel: int) -> None:
        """Forget a half-sent file."""
        upload = self.uploads.pop(channel, None)
        if upload is not None:
            os.close(upload.fd)
            with contextlib.suppress(OSError):
                os.unlink(upload.part)

    def do_remove(self, body: Json, _: list[bytes]) -> Json:
        """Remove files and links."""
        for path in body["paths"]:
            self.tree.remove(path)
        return {}

    def do_clear(self, _: Json, __: list[bytes]) -> Json:
        """Empty the workspace."""
        self.tree.clear()
        return {}

    def do_get(self, body: Json, _: list[bytes]) -> Json:
        """Send a file on a channel, at most ``limit`` bytes of it."""
        size, reader = self.tree.reader(body["path"], body["limit"])
        self.outbox.stream(body["channel"], reader)
        return {"size": size}

    # -- runs ------------------------------------------------------------------------------------------------

    def do_run(self, body: Json, attachments: list[bytes]) -> Json:
        """Start a run; its events come on the channel that the host named."""
        if self.run is not None and not self.run.done:
            raise Refused("busy", f"run {self.run.id} is going on")
        self.run_count += 1
        run = Run(body, self.run_count, self.outbox)
        stdin = attachments[0] if attachments else b""
        self.tree.prepare()
        os.chdir(self.tree.root)
        self.run = run
        if body["language"] == "bash":
            run.shell = Shell(body["code"], stdin, run.request["env"])
            self.began(run, "new")
            self.reaper.watch(run.shell.pid, lambda status: self.finish(run, exit_facts(status)))
            return {}
        if not run.fresh and self.kept is None:
            self.kept = self.fork()
        run.interpreter = self.fork() if run.fresh else self.kept
        run.request["stdin"] = stdin.decode("latin-1")
        self.later(TEMPLATE_LIMIT_S, lambda: self.give_up_waiting(run))
        self.begin_when_ready(run)
        return {}

    def begin_when_ready(self, run: Run) -> None:
        """Hand the cell to its interpreter as soon as that is up."""
        interpreter = run.interpreter
        if interpreter is None or not interpreter.ready or run.started is not None:
            return
        state = "kept" if interpreter.used else "new"
        interpreter.used = True
        stdin = run.request.pop("stdin").encode("latin-1")
        self.began(run, state)
        try:
            interpreter.begin(run.number, run.request, stdin)
        except OSError as error:
            self.lose_interpreter(interpreter, f"not reachable: {error}")

    def began(self, run: Run, state: str) -> None:
        """The cell runs from now on."""
        run.started = time.monotonic()
        run.emit("started", {"interpreter": state})
        self.later(run.timeout_s, lambda: self.stop_run(run, "timeout", 0.8))
        self.watch_outputs(run)

    def watch_outputs(self, run: Run) -> None:
        """Read the run's output unless the host has too much of it queued already."""
        paused = run.backlogged
        for fd, stream in run.outputs():
            if paused:
                self.unwatch(fd)
            elif fd not in self.selector.get_map():
                self.watch(fd, lambda f=fd, s=stream: self.read_output(run, f, s))  # type: ignore[misc]
        interpreter = run.interpreter
        if interpreter is not None and interpreter.ready:
            if paused:
                self.unwatch(interpreter.sock.fileno())
            elif interpreter.sock.fileno() not in self.selector.get_map():
                self.watch_interpreter(interpreter)

    def read_output(self, run: Run, fd: int, stream: Any) -> None:
        """Output arrived; a pipe that all writers closed is not looked at again before the run's end."""
        if run.read(fd, stream) == 0:
            self.unwatch(fd)

    def give_up_waiting(self, run: Run) -> None:
        """The interpreter did not come up."""
        if run is self.run and run.started is None and not run.done:
            self.finish(run, {"failure": "the interpreter did not start"})

    def do_interrupt(self, body: Json, _: list[bytes]) -> Json:
        """Interrupt the named run, if it is the one going on."""
        run = self.run
        if run is None or run.done or run.id != body["run"]:
            return {"running": False}
        self.stop_run(run, "interrupted", 5.0)
        return {"running": True}

    def stop_run(self, run: Run, reason: str, kill_after_s: float) -> None:
        """SIGINT now and after 1 s, SIGKILL at last; the first reason is the one that is told."""
        if run is not self.run or run.done:
            return
        first = run.stopped_by is None
        run.stopped_by = run.stopped_by or reason
        if run.started is None:
            self.finish(run, {})
            return
        if first:
            self.signal_run(run)
            self.later(1.0, lambda: self.signal_run(run))
        self.later(kill_after_s, lambda: self.kill_run(run))

    def signal_run(self, run: Run) -> None:
        """SIGINT for the run's process group; an interpreter obeys only if the run named is its own."""
        process = run.interpreter or run.shell
        if run is self.run and not run.done and process is not None and process.pid:
            if run.interpreter is not None:
                run.interpreter.aim(run.number)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGINT)

    def kill_run(self, run: Run) -> None:
        """The run did not obey."""
        process = run.interpreter or run.shell
        if run is self.run and not run.done and process is not None and process.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)

    def finish(self, run: Run, facts: Json) -> None:
        """The cell ended: kill what it left, stop the interpreter, look at the files, tell the host."""
        if run.done or run is not self.run:
            return
        run.done = True
        duration = run.elapsed_ms()
        for fd, _ in run.outputs():
            self.unwatch(fd)
        run.drain()
        mapped, survivors = self.quiet()
        run.drain()
        counts = run.flush_streams()
        if run.shell is not None:
            run.shell.close()
        interpreter = run.interpreter
        alive = interpreter is not None and not run.fresh and interpreter is self.kept
        if interpreter is not None and interpreter.dead:
            interpreter.close()
        run.emit("done", {
            **facts,
            "stopped_by": run.stopped_by,
            "duration_ms": duration,
            "interpreter": "kept" if alive or interpreter is None or run.fresh else "lost",
            "survivors": survivors,
            "streams": counts,
            "changes": self.tree.changes(mapped),
        })  # fmt: skip
        if self.kept is None and self.template is not None:
            self.kept = self.fork()

    def quiet(self) -> tuple[set[str], int]:
        """Stop the kept interpreter and kill everything else; gives its shared mappings and the survivors."""
        self.settle_forks()
        kept, template = self.kept, self.template
        mapped: set[str] = set()
        keep = [p.pid for p in (template, kept) if p is not None and p.pid]
        if template is not None and not template.ready:
            keep += [pid for pid, parent in system.processes().items() if parent == template.pid]
        if kept is not None and kept.ready:
            self.unwatch(kept.sock.fileno())
            if system.stop_and_wait(kept.pid):
                mapped = system.shared_mappings(kept.pid, self.tree.root)
            else:
                keep.remove(kept.pid)
        return mapped, system.kill_all(keep, self.reaper.reap, KILL_LIMIT_S)

    def settle_forks(self) -> None:
        """Wait until every fork under way has told its pid, so that no newborn is taken for a leftover."""
        template = self.template
        deadline = time.monotonic() + KILL_LIMIT_S
        while template is not None and template.ready and template.waiting and time.monotonic() < deadline:
            if select.select([template.sock], [], [], 0.1)[0]:
                self.on_template(template)
            if template is not self.template:
                return

    def do_ack(self, body: Json, _: list[bytes]) -> None:
        """The host has seen a run's events up to a number."""
        if self.run is not None and self.run.id == body["run"]:
            self.run.acknowledge(body["seq"])
            if self.run.done and body.get("final"):
                self.outbox.close(self.run.channel)
                self.run = None

    def do_resume(self, body: Json, _: list[bytes]) -> Json:
        """Another host takes over the run going on."""
        run = self.run
        if run is None or run.id != body["run"]:
            raise Refused("unknown_run", "that run is not here")
        run.resend(body["channel"], body["after"])
        return {"seq": run.seq}

    def do_reset(self, _: Json, __: list[bytes]) -> Json:
        """A new interpreter; files stay."""
        if self.run is not None and not self.run.done:
            raise Refused("busy", f"run {self.run.id} is going on")
        self.settle_forks()
        if self.kept is not None and self.kept.used:
            self.discard(self.kept)
        self.quiet()
        if self.kept is None:
            self.kept = self.fork()
        return {}

    # -- interpreters ----------------------------------------------------------------------------------------

    def start_template(self) -> Template:
        """Start the process that interpreters are forked from."""
        template = Template(self.config["python"], self.bundle, self.config)
        self.template = template
        self.watch(template.sock.fileno(), lambda: self.on_template(template))
        self.reaper.watch(template.pid, lambda _: self.on_template_death(template))
        return template

    def fork(self) -> Interpreter:
        """A new interpreter; it becomes ready later."""
        template = self.template or self.start_template()
        interpreter = Interpreter()
        template.waiting.append(interpreter)
        template.send_forks()
        self.reaper.expecting = True
        return interpreter

    def on_template(self, template: Template) -> None:
        """The template forked an interpreter, or is gone."""
        try:
            body = template.receive()
        except BlockingIOError:
            return
        except (OSError, EOFError, ValueError):
            self.unwatch(template.sock.fileno())
            with contextlib.suppress(ProcessLookupError):
                os.kill(template.pid, signal.SIGKILL)
            return
        if body.get("op") == "ready":
            template.ready = True
            template.send_forks()
        elif "pid" in body and template.waiting:
            interpreter = template.waiting.pop(0)
            template.sent -= 1
            interpreter.pid = int(body["pid"])
            self.template_failures = 0
            self.reaper.expecting = bool(template.waiting)
            self.reaper.watch(interpreter.pid, lambda status: self.on_interpreter_death(interpreter, status))
            self.watch_interpreter(interpreter)

    def on_template_death(self, template: Template) -> None:
        """Start another one, unless it keeps dying."""
        self.unwatch(template.sock.fileno())
        template.close()
        self.template = None
        self.template_failures += 1
        waiting = template.waiting
        if self.kept in waiting:
            self.kept = None
        run = self.run
        if run is not None and not run.done and run.interpreter in waiting:
            self.finish(run, {"failure": "the template died before the interpreter started"})
        if self.template_failures <= 3 and self.kept is None:
            self.kept = self.fork()

    def watch_interpreter(self, interpreter: Interpreter) -> None:
        """Read what an interpreter says."""
        self.watch(interpreter.sock.fileno(), lambda: self.on_interpreter(interpreter))

    def on_interpreter(self, interpreter: Interpreter) -> None:
        """Messages of an interpreter; one that breaks the protocol is killed."""
        try:
            for body, attachments in interpreter.messages():
                self.on_interpreter_message(interpreter, body, attachments)
        except EOFError:
            self.lose_interpreter(interpreter, "it closed its control channel")
        except (ProtocolViolation, KeyError, TypeError, ValueError) as error:
            self.lose_interpreter(interpreter, f"garbage on its control channel: {error!r}"[:200])

    def on_interpreter_message(self, interpreter: Interpreter, body: Json, attachments: list[bytes]) -> None:
        """``ready`` once, then ``display`` and ``done`` of the run it has."""
        run = self.run
        mine = run is not None and run.interpreter is interpreter and not run.done
        if body["op"] == "ready":
            interpreter.ready = True
            if mine and run is not None:
                self.begin_when_ready(run)
            else:
                self.unwatch(interpreter.sock.fileno())
                system.stop_and_wait(interpreter.pid)
                self.say({"op": "ready"})
        elif run is not None and mine and body.get("n") == run.number:
            run.drain()
            if body["op"] == "display":
                event = {key: body[key] for key in ("kind", "data", "binary", "metadata")}
                run.emit("display", event, tuple(attachments))
            elif body["op"] == "done":
                facts = {key: body.get(key) for key in ("status", "exit_code", "error")}
                self.finish(run, {"signal": None, **facts})

    def lose_interpreter(self, interpreter: Interpreter, why: str) -> None:
        """Kill an interpreter that cannot be talked to; its death then ends the run."""
        self.unwatch(interpreter.sock.fileno())
        run = self.run
        if run is not None and run.interpreter is interpreter:
            run.facts["failure"] = why
        with contextlib.suppress(ProcessLookupError):
            os.kill(interpreter.pid, signal.SIGKILL)

    def on_interpreter_death(self, interpreter: Interpreter, status: int) -> None:
        """An interpreter is gone, by its own doing or ours."""
        run = self.run
        interpreter.dead = True
        self.unwatch(interpreter.sock.fileno())
        if interpreter is self.kept:
            self.kept = None
        if run is None or run.interpreter is not interpreter:
            interpreter.close()
        elif not run.done:
            with contextlib.suppress(EOFError, ProtocolViolation, KeyError, TypeError, ValueError):
                for body, attachments in interpreter.messages():
                    if body.get("op") == "display":
                        self.on_interpreter_message(interpreter, body, attachments)
            self.finish(run, {**exit_facts(status), **run.facts})

    def discard(self, interpreter: Interpreter) -> None:
        """End an interpreter on purpose."""
        self.reaper.forget(interpreter.pid)
        self.unwatch(interpreter.sock.fileno())
        if interpreter is self.kept:
            self.kept = None
        if interpreter.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(interpreter.pid, signal.SIGKILL)
        interpreter.close()

    def on_child(self, wake: int) -> None:
        """Some child died."""
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        self.reaper.reap()


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def main(raw: bytes, arguments: list[str]) -> None:
    """Entry point inside the sandbox: ``arguments[0]`` is the configuration as JSON."""
    config = json.loads(arguments[0])
    signal.signal(signal.SIGINT, signal.SIG_IGN if os.getpid() != 1 else signal.SIG_DFL)
    system.become_subreaper()
    system.set_dumpable(False)
    sys.argv = ["foliobox-agent"]
    agent = Agent(config, raw)
    agent.tree.prepare()
    os.chdir(config["root"])
    with contextlib.suppress(KeyboardInterrupt):
        agent.serve()
