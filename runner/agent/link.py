"""The agent's end of the stream: frames over its stdio, requests with one reply each, attachment of hosts."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from .loop import WRITE, Loop
from .protocol import (
    ABORT,
    CONTROL,
    CREDIT,
    DATA,
    END,
    MESSAGE,
    PADDING,
    PART,
    Assembler,
    Decoder,
    Frame,
    Json,
    Outbox,
    ProtocolViolation,
)

_READ = 1 << 16  # stays below malloc's threshold for a mapping of its own
_WRITE = 1 << 18
Handle = Callable[[Json, list[bytes]], Json | None]


class Refused(Exception):
    """A request of the host cannot be done; ``code`` and the text go back in the reply."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Link:
    """Reads from descriptor 0 and writes to descriptor 1 without blocking.

    ``requests`` maps each ``op`` to what does it; ``on_frame`` takes the frames of uploads, ``on_hello`` says
    what a host that attaches must know, ``on_gone`` is called when there is no host any more.
    """

    def __init__(self, loop: Loop, on_gone: Callable[[], None]) -> None:
        self.outbox = Outbox()
        self.requests: dict[str, Handle] = {"ping": lambda *_: {}, "beat": lambda *_: None}
        self.on_frame: Callable[[Frame], None] = lambda _: None
        self.on_hello: Callable[[], Json] = dict
        self._loop, self._on_gone = loop, on_gone
        self._decoder, self._assembler = Decoder(), Assembler()
        self._unsent = b""
        self._cut = False
        self._heard = 0.0
        for fd in (0, 1):
            os.set_blocking(fd, False)
        loop.watch(0, self._read)

    def expect_host(self, limit_s: float) -> None:
        """Take the host for gone when no frame has come for so long: its end of the stream outlives it here."""
        self._heard = time.monotonic()
        self._look_for_host(limit_s)

    def _look_for_host(self, limit_s: float) -> None:
        left = self._heard + limit_s - time.monotonic()
        if left > 0:
            self._loop.later(left, lambda: self._look_for_host(limit_s))
        else:
            self._on_gone()

    def say(self, body: Json) -> None:
        """Send a control message."""
        self.outbox.message(CONTROL, body)

    def flush(self) -> None:
        """Write as much as the host takes now; the rest when there is room."""
        while self._unsent or (self._pull()):
            try:
                sent = os.write(1, self._unsent)
            except BlockingIOError:
                break
            except OSError:
                self._on_gone()
                return
            self._unsent = self._unsent[sent:]
            self._cut = bool(self._unsent)
        if bool(self._unsent) != self._loop.watching(1):
            if self._unsent:
                self._loop.watch(1, self.flush, WRITE)
            else:
                self._loop.unwatch(1)

    def _pull(self) -> bool:
        self._unsent = self.outbox.pull(_WRITE)
        return bool(self._unsent)

    def _read(self) -> None:
        try:
            data = os.read(0, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._on_gone()
            return
        for frame in self._decoder.feed(data):
            self._heard = time.monotonic()
            try:
                self._on_any_frame(frame)
            except ProtocolViolation as error:
                self.say({"op": "violation", "detail": str(error)})

    def _on_any_frame(self, frame: Frame) -> None:
        """Sort a frame to whom it belongs; frames of another epoch than the host's are old ones."""
        if frame.kind in (MESSAGE, PART):
            whole = self._assembler.add(frame)
            if whole is None:
                return
            if whole[0].get("op") == "hello":
                self._attach(frame.epoch)
            elif frame.epoch == self.outbox.epoch:
                self._request(*whole)
        elif frame.epoch != self.outbox.epoch:
            return
        elif frame.kind == CREDIT:
            self.outbox.credit(frame.channel, int.from_bytes(frame.payload[:4], "big"))
        elif frame.kind in (DATA, END):
            self.on_frame(frame)
        elif frame.kind == ABORT:
            self.outbox.close(frame.channel)
            self.on_frame(frame)

    def _attach(self, epoch: int) -> None:
        """A host attached: nothing of the last one goes on, and the half frame it may hold is completed."""
        self._unsent = PADDING if self._cut else b""
        self._assembler = Assembler()
        self.outbox.reset(epoch)
        self.say({"op": "welcome", **self.on_hello()})

    def _request(self, body: Json, attachments: list[bytes]) -> None:
        """Do what the host asks; every request with an ``id`` gets exactly one reply."""
        reply: Json | None
        try:
            handle = self.requests.get(str(body.get("op")))
            if handle is None:
                raise Refused("unknown_op", f"no such request: {body.get('op')!r}"[:200])
            reply = handle(body, attachments)
        except Refused as refusal:
            reply = {"ok": False, "code": refusal.code, "detail": refusal.detail}
        except OSError as error:
            reply = {"ok": False, "code": "os_error", "errno": error.errno, "detail": error.strerror or str(error)}
        except (KeyError, TypeError, ValueError, StopIteration, RecursionError) as error:
            reply = {"ok": False, "code": "bad_request", "detail": repr(error)[:500]}
        if reply is not None and "id" in body:
            self.say({"op": "reply", "id": body["id"], "ok": True, **reply})

    def close(self) -> None:
        """Stop reading and writing."""
        for fd in (0, 1):
            self._loop.unwatch(fd)
            with contextlib.suppress(OSError):
                os.close(fd)
