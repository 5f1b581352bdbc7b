"""One run as the agent sees it: its events with sequence numbers, its capped output, its deadlines."""

from __future__ import annotations

import os
import time
from collections import deque
from typing import NamedTuple

from .children import Interpreter, Shell
from .outputs import Displays, Stream
from .protocol import CREDIT_WINDOW, EVENT_TEXT, Json, Outbox, pack_message

BACKLOG = 1 << 18


class _Sent(NamedTuple):
    seq: int
    size: int
    body: Json
    attachments: tuple[bytes, ...]


class Run:
    """The run going on, or the last one until the host has acknowledged its result.

    No event is forgotten before it is acknowledged: while 1 MiB of them wait, nothing more is read from the
    run's processes.
    """

    def __init__(self, body: Json, code: bytes, number: int, outbox: Outbox) -> None:
        self.id: str = body["run"]
        self.channel: int = body["channel"]
        self.number = number
        self.fresh = bool(body.get("fresh"))
        self.script = bool(body.get("script"))
        self.detached = bool(body.get("detached"))
        self.light = False  # its process has so little memory that nobody need wait until that is free
        self.timeout_s: float = body["timeout_ms"] / 1000
        self.code = code
        self.stdin = b""
        self.env: dict[str, str] = body.get("env") or {}
        self.interpreter: Interpreter | None = None
        self.shell: Shell | None = None
        self.displays = Displays()
        self.streams = {"stdout": Stream("stdout"), "stderr": Stream("stderr")}
        self.began: float | None = None
        self.stopped_by: str | None = None
        self.killed = False
        self.facts: Json = {}
        self.done = False
        self.closed = False
        self.timers: list[int] = []
        self.seq = 0
        self.acknowledged = 0
        self.note: object = None  # of the host, about what it has acknowledged
        self.state: str | None = None  # whether the interpreter was new when the cell began
        self._outbox = outbox
        self._detached = False
        self._ended: set[int] = set()
        self._unacked: deque[_Sent] = deque()
        self._unacked_size = 0

    @property
    def process(self) -> Interpreter | Shell | None:
        """What runs the code."""
        return self.interpreter or self.shell

    @property
    def leaves(self) -> bool:
        """Whether what it has started goes on after its end: only where it ended by itself."""
        return self.detached and self.began is not None and self.stopped_by is None

    @property
    def backlogged(self) -> bool:
        """Whether reading more from the run's processes must wait for the host."""
        return self._unacked_size > CREDIT_WINDOW or self._outbox.queued(self.channel) > BACKLOG

    def emit(self, kind: str, body: Json, attachments: tuple[bytes, ...] = ()) -> None:
        """Send an event, and keep it until it is acknowledged."""
        self.seq += 1
        event = {"seq": self.seq, "type": kind, **body}
        if self._detached:
            size = len(pack_message(event, attachments))
        else:
            size = self._outbox.message(self.channel, event, attachments)
        self._unacked.append(_Sent(self.seq, size, event, attachments))
        self._unacked_size += size

    def show(self, body: Json, attachments: tuple[bytes, ...]) -> None:
        """Send a display, as far as the run may show more."""
        if self.displays.take(body, attachments):
            self.emit("display", body, attachments)

    def finish_outputs(self) -> Json:
        """Send what was held back; gives the final counts of the streams, and of displays left out."""
        for body, attachments in self.displays.held():
            self.emit("display", body, attachments)
        counts: Json = {}
        for stream in self.streams.values():
            text, counts[stream.name] = stream.finish()
            if text:
                self.emit(stream.name, {"text": text})
        return {"streams": counts, "displays_dropped": self.displays.dropped}

    def detach(self) -> None:
        """A new host attached: keep events for it, and send none before it asks, on a channel it does not know."""
        self._detached = True

    def acknowledge(self, seq: int, note: object = None) -> None:
        """The host has seen everything up to ``seq``; its ``note`` is for the host that comes next."""
        self.note = note
        self.acknowledged = max(self.acknowledged, min(seq, self.seq))
        while self._unacked and self._unacked[0].seq <= seq:
            self._unacked_size -= self._unacked.popleft().size

    def resend(self, channel: int, after: int) -> None:
        """Send kept events again to another host, on its channel."""
        self._outbox.close(self.channel)
        self.channel, self._detached = channel, False
        for sent in self._unacked:
            if sent.seq > after:
                self._outbox.message(channel, sent.body, sent.attachments)

    def read(self, fd: int, stream: Stream) -> bool:
        """Forward what one read gives; False when there is nothing now, or never will be."""
        try:
            data = os.read(fd, EVENT_TEXT)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._ended.add(fd)
            return False
        text = stream.take(data)
        if text:
            self.emit(stream.name, {"text": text})
        return True

    def drain(self) -> None:
        """Forward everything that the pipes hold now (bounded: writers may be faster than we are)."""
        for fd, stream in self.outputs():
            for _ in range(64):
                if not self.read(fd, stream):
                    break

    def outputs(self) -> list[tuple[int, Stream]]:
        """Descriptors of the running process, but those that every writer has closed, with their streams."""
        source = self.process
        if source is None:
            return []
        pairs = [(source.stdout, self.streams["stdout"]), (source.stderr, self.streams["stderr"])]
        return [pair for pair in pairs if pair[0] not in self._ended] if self._ended else pairs

    def elapsed_ms(self) -> int:
        """Milliseconds since the cell began."""
        return 0 if self.began is None else int((time.monotonic() - self.began) * 1000)
