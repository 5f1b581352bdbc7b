"""The framed byte stream between host and agent; the one file both ends read.

A frame is a 21-byte header (magic, epoch, channel, kind, payload length, CRC-32 of the header so far and
of the payload) and at most 64 KiB of payload. Channel 0 carries control messages and goes first; every
other channel may have 1 MiB in flight until the receiver grants more. A reader that meets bytes that
are no frame looks for the next magic, so that half a frame of a dead host costs nothing but itself.

A message is ``uint32 JSON length, JSON object, attachments``; the object's ``attached`` lists the size of
each attachment. It may span several frames (kind ``PART`` … ``MESSAGE``). Everything that comes out of a
sandbox is untrusted: lengths are bounded here, meanings are checked by the host. JSON is held to 4 MiB,
because the objects it becomes may take twenty times its size; large texts travel as attachments.
"""

from __future__ import annotations

import struct
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from json import dumps, loads
from typing import Any, NamedTuple

MAGIC = b"FxB\x01"
HEADER = struct.Struct("!4sIIBII")
MAX_PAYLOAD = 1 << 16
CREDIT_WINDOW = 1 << 20
MAX_MESSAGE = 48 << 20
MAX_REPORT = 20 << 20  # of what an interpreter says, and the agent tells the host
MAX_JSON = 4 << 20
MAX_NESTING = 64  # levels of a value that is shown
CONTROL = 0

MESSAGE, PART, DATA, END, CREDIT, ABORT = 1, 2, 3, 4, 5, 6
KINDS = frozenset((MESSAGE, PART, DATA, END, CREDIT, ABORT))
_CREDITED = frozenset((MESSAGE, PART, DATA))

# Sent by the host before HELLO: completes whatever half frame a dead host left behind, and is itself no frame.
PADDING = b"\0" * (MAX_PAYLOAD + HEADER.size)

Json = dict[str, Any]


class ProtocolViolation(Exception):
    """The other end sent something that the protocol does not allow."""


class Frame(NamedTuple):
    """One received frame; ``payload`` is at most 64 KiB."""

    epoch: int
    channel: int
    kind: int
    payload: bytes


def encode_frame(epoch: int, channel: int, kind: int, payload: bytes = b"") -> bytes:
    """Bytes of one frame. The payload must not be larger than ``MAX_PAYLOAD``."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError("frame payload too large")
    head = HEADER.pack(MAGIC, epoch, channel, kind, len(payload), 0)[:-4]
    return b"".join((head, zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "big"), payload))


class Decoder:
    """Turns a byte stream into frames, skipping whatever is no valid frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self.skipped = 0

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield each whole frame that ``data`` completes."""
        self._buffer += data
        while True:
            frame = self._next()
            if frame is None:
                return
            yield frame

    def _next(self) -> Frame | None:
        buffer = self._buffer
        while True:
            if not self._seek_magic() or len(buffer) < HEADER.size:
                return None
            _, epoch, channel, kind, length, crc = HEADER.unpack_from(buffer)
            if kind not in KINDS or length > MAX_PAYLOAD:
                self._skip(1)
                continue
            end = HEADER.size + length
            if len(buffer) < end:
                return None
            with memoryview(buffer) as view:
                payload = bytes(view[HEADER.size : end])
                right = zlib.crc32(payload, zlib.crc32(view[: HEADER.size - 4])) == crc
            if not right:
                # All of it goes: half a frame is followed by padding, and checking each byte that might begin
                # a frame anew would let a hostile end make us compute 64 KiB of CRC for every 4 bytes it sends.
                self._skip(end)
                continue
            del buffer[:end]
            return Frame(epoch, channel, kind, payload)

    def _seek_magic(self) -> bool:
        """Drop bytes up to the next (possibly partial) magic; False when none is left to look at."""
        buffer = self._buffer
        if buffer.startswith(MAGIC):
            return True
        at = buffer.find(MAGIC)
        if at < 0:
            keep = next((n for n in range(len(MAGIC) - 1, 0, -1) if buffer.endswith(MAGIC[:n])), 0)
            self._skip(len(buffer) - keep)
            return False
        self._skip(at)
        return True

    def _skip(self, count: int) -> None:
        self.skipped += count
        del self._buffer[:count]


def pack_message(body: Json, attachments: tuple[bytes, ...] = ()) -> bytes:
    """Encode a message; ``attachments`` travel as raw bytes behind the JSON."""
    if attachments:
        body = {**body, "attached": [len(a) for a in attachments]}
    text = dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return b"".join((len(text).to_bytes(4, "big"), text, *attachments))


def unpack_message(data: bytes | bytearray) -> tuple[Json, list[bytes]]:
    """Decode a message; ``ProtocolViolation`` when its lengths or its JSON are wrong."""
    size = int.from_bytes(data[:4], "big")
    if len(data) < 4 or size > len(data) - 4:
        raise ProtocolViolation("message shorter than it says")
    if size > MAX_JSON:
        raise ProtocolViolation("message with too much JSON")
    try:
        body = _loads(bytes(data[4 : 4 + size]))
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation(f"message is not JSON: {type(error).__name__}") from None
    if not isinstance(body, dict):
        raise ProtocolViolation("message is not an object")
    sizes = body.pop("attached", [])
    valid = isinstance(sizes, list) and all(type(s) is int and s >= 0 for s in sizes)
    if not valid or sum(sizes) != len(data) - 4 - size:
        raise ProtocolViolation("attachment lengths do not add up")
    attachments, at = [], 4 + size
    with memoryview(data) as view:
        for length in sizes:
            attachments.append(bytes(view[at : at + length]))
            at += length
    return body, attachments


def _loads(text: bytes) -> Any:
    """JSON without lone surrogates, which no file, log or HTTP answer can hold: they become ``?``."""
    value = loads(text)
    if b"\\ud" in text or b"\\uD" in text:
        plain = dumps(value, ensure_ascii=False)
        if not plain.isascii():
            value = loads(plain.encode("utf-8", "replace"))
    return value


def too_deep(value: Any, levels: int = MAX_NESTING) -> bool:
    """Whether lists and objects lie in each other deeper than that."""
    inner = [value]
    for _ in range(levels + 1):
        inner = [entry for entry in inner if isinstance(entry, (dict, list))]
        if not inner:
            return False
        inner = [each for entry in inner for each in (entry.values() if isinstance(entry, dict) else entry)]
    return True


class Assembler:
    """Joins the parts of messages per epoch and channel, bounded by ``MAX_MESSAGE``."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self._parts: dict[tuple[int, int], bytearray] = {}
        self._limit = limit

    def add(self, frame: Frame) -> tuple[Json, list[bytes]] | None:
        """The message that ``frame`` completes, or None while more parts must come."""
        key = (frame.epoch, frame.channel)
        if frame.kind == MESSAGE and key not in self._parts:
            return unpack_message(frame.payload)
        parts = self._parts.setdefault(key, bytearray())
        if len(parts) + len(frame.payload) > self._limit:
            del self._parts[key]
            raise ProtocolViolation("message too large")
        parts += frame.payload
        if frame.kind == PART:
            return None
        return unpack_message(self._parts.pop(key))

    def drop(self, epoch: int, channel: int) -> None:
        """Forget the parts of a message whose channel was closed."""
        self._parts.pop((epoch, channel), None)


class _Channel:
    __slots__ = ("credit", "frames", "queued", "source")

    def __init__(self) -> None:
        self.credit = CREDIT_WINDOW
        self.frames: deque[tuple[int, bytes]] = deque()
        self.queued = 0
        self.source: Callable[[int], bytes] | None = None


class Outbox:
    """What waits to be written: control first, then the channels in turn, each within its credit."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self._control: deque[bytes] = deque()
        self._channels: OrderedDict[int, _Channel] = OrderedDict()

    def message(self, channel: int, body: Json, attachments: tuple[bytes, ...] = ()) -> int:
        """Queue a message; returns how many payload bytes it takes of the channel's credit."""
        packed = pack_message(body, attachments)
        view = memoryview(packed)
        for at in range(0, len(packed), MAX_PAYLOAD):
            last = at + MAX_PAYLOAD >= len(packed)
            self._queue(channel, MESSAGE if last else PART, bytes(view[at : at + MAX_PAYLOAD]))
        return len(packed)

    def data(self, channel: int, payload: bytes) -> None:
        """Queue raw bytes, split into frames."""
        for at in range(0, len(payload), MAX_PAYLOAD):
            self._queue(channel, DATA, payload[at : at + MAX_PAYLOAD])

    def stream(self, channel: int, source: Callable[[int], bytes]) -> None:
        """Send what ``source(n)`` returns (at most n bytes a call), then END; it is asked only within credit.

        When it raises OSError the channel ends with ABORT, so that a short file is never taken for a whole one.
        """
        self._channel(channel).source = source

    def end(self, channel: int) -> None:
        """Queue the end of a channel's data."""
        self._queue(channel, END, b"")

    def abort(self, channel: int, reason: str) -> None:
        """Drop what the channel still had to send and tell the other end why."""
        self._channels.pop(channel, None)
        self._control.append(encode_frame(self.epoch, channel, ABORT, reason.encode()[:1024]))

    def grant(self, channel: int, count: int) -> None:
        """Tell the other end that it may send ``count`` more bytes on a channel."""
        self._control.append(encode_frame(self.epoch, channel, CREDIT, count.to_bytes(4, "big")))

    def credit(self, channel: int, count: int) -> None:
        """The other end granted ``count`` bytes."""
        state = self._channels.get(channel)
        if state is not None:
            state.credit = min(state.credit + count, CREDIT_WINDOW)

    def close(self, channel: int) -> None:
        """Forget a channel and whatever it still had to send."""
        self._channels.pop(channel, None)

    def reset(self, epoch: int) -> None:
        """Start anew for another host: nothing queued for the old one is sent."""
        self.epoch = epoch
        self._control.clear()
        self._channels.clear()

    def queued(self, channel: int) -> int:
        """Payload bytes that wait on a channel."""
        state = self._channels.get(channel)
        return state.queued if state else 0

    def pull(self, at_most: int) -> bytes:
        """The next bytes to write, about ``at_most``; empty when nothing may be sent now."""
        out: list[bytes] = []
        size = 0
        while self._control and size < at_most:
            out.append(self._control.popleft())
            size += len(out[-1])
        progressed = True
        while progressed and size < at_most:
            progressed = False
            for channel in list(self._channels):
                frame = self._take(channel)
                if frame is not None:
                    out.append(frame)
                    size += len(frame)
                    progressed = True
                if size >= at_most:
                    break
        return b"".join(out)

    def _channel(self, channel: int) -> _Channel:
        state = self._channels.get(channel)
        if state is None:
            state = self._channels[channel] = _Channel()
        return state

    def _queue(self, channel: int, kind: int, payload: bytes) -> None:
        if channel == CONTROL:
            self._control.append(encode_frame(self.epoch, channel, kind, payload))
            return
        state = self._channel(channel)
        state.frames.append((kind, payload))
        state.queued += len(payload)

    def _take(self, channel: int) -> bytes | None:
        state = self._channels[channel]
        if not state.frames and state.source is not None and state.credit > 0:
            self._ask(state)
        if not state.frames:
            return None
        kind, payload = state.frames[0]
        if kind in _CREDITED and len(payload) > state.credit:
            return None
        state.frames.popleft()
        if kind in _CREDITED:
            state.credit -= len(payload)
            state.queued -= len(payload)
        if kind in (END, ABORT):
            self._channels.pop(channel, None)
        else:
            self._channels.move_to_end(channel)
        return encode_frame(self.epoch, channel, kind, payload)

    @staticmethod
    def _ask(state: _Channel) -> None:
        assert state.source is not None
        try:
            chunk = state.source(min(state.credit, MAX_PAYLOAD))
        except OSError as error:
            chunk, ending = b"", (ABORT, (error.strerror or str(error)).encode()[:1024])
        else:
            ending = (END, b"")
        if chunk:
            state.frames.append((DATA, chunk))
            state.queued += len(chunk)
        else:
            state.source = None
            state.frames.append(ending)


# --- what both ends say -----------------------------------------------------------------------------------

# host -> agent:  hello, ping, mark, put, upload, remove, clear, get, get_many, run, interrupt, reset, ack, resume,
#                 beat
# agent -> host:  welcome, ready, reply, violation; on a run's channel: events, numbered by ``seq``
MAX_PATH_BYTES = 1024
MAX_LEVELS = 64
MAX_ENTRIES = 20_000
STREAM_KEEP = 16 << 20
TAIL_KEEP = 1 << 16
EVENT_TEXT = 32 << 10
DISPLAYS_KEEP = 256  # what is shown beyond these, or beyond so many bytes, is counted only
DISPLAY_BYTES = 64 << 20
UPDATES_KEEP = 1000  # later updates of what is shown replace each other until the run ends
MAX_ALONG = 48 << 10  # bytes of changed files that come with the end of a run, in the same message
FILES_ALONG = 8
LONG_TEXT = 64 << 10  # longer texts of a display travel as attachments
