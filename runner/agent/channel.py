"""The interpreter's line to the agent, and the interrupts that come past it."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from .protocol import LONG_TEXT, MAX_NESTING, pack_message, too_deep, unpack_message

MAX_ITEM = 16 << 20
_REQUEST = 66 << 10
_RUN_NUMBER = struct.Struct("!Q")
_dumps, _loads, _fstat, _pread, _read, _close = json.dumps, json.loads, os.fstat, os.pread, os.read, os.close
_wait = os.eventfd_read
_CMSG_SPACE = socket.CMSG_SPACE(3 * array.array("i").itemsize)


class Interrupts:
    """SIGINT handling: obeyed only while a run is active, unless the agent aimed it at another run.

    The agent writes the number of the run it means before it sends the signal; 0 there means that the
    signal is the cell's own (``signal.raise_signal``, ``_thread.interrupt_main``).
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.active = 0
        self._shielded = 0
        self._pending = False

    def __call__(self, *_: object) -> None:
        if not self.active or self._aimed_at() not in (0, self.active):
            return
        if self._shielded:
            self._pending = True
            return
        raise KeyboardInterrupt

    def _aimed_at(self) -> int:
        try:
            return int(_RUN_NUMBER.unpack(_pread(self.target, _RUN_NUMBER.size, 0))[0])
        except (OSError, struct.error):
            return 0

    def disarm(self) -> None:
        """From here on SIGINT is ignored; one that arrives on the way is swallowed."""
        while True:
            try:
                self.active = 0
                return
            except KeyboardInterrupt:
                continue

    @contextlib.contextmanager
    def shielded(self) -> Any:
        """Hold an interrupt back until the block ends: half a message would cost the interpreter."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._shielded += 1
        try:
            yield
        finally:
            self._shielded -= 1
            if self._pending and not self._shielded:
                self._pending = False
                if self.active:
                    raise KeyboardInterrupt


class Channel:
    """The socket to the agent. Only the interpreter itself speaks on it, not what it forks."""

    def __init__(self, fd: int, taken: int, interrupts: Interrupts, flush: Callable[[], None]) -> None:
        self._sock: socket.socket | None = socket.socket(fileno=fd)
        self._sock.settimeout(None)
        info = _fstat(fd)
        self._identity = (info.st_dev, info.st_ino)
        self._taken, self._interrupts, self._flush = taken, interrupts, flush
        self._lock = threading.Lock()
        self.number = 0

    def _checked(self) -> socket.socket:
        """The socket, unless user code has closed its descriptor and something else has the number now."""
        if self._sock is None:
            raise EOFError
        info = _fstat(self._sock.fileno())
        if (info.st_dev, info.st_ino) != self._identity:
            os._exit(71)
        return self._sock

    def abandon(self) -> None:
        """In a forked child: this line is not ours."""
        sock, self._sock = self._sock, None
        self._lock = threading.Lock()
        if sock is not None:
            sock.close()

    def receive(self) -> tuple[dict[str, Any], bytes, int]:
        """The next request, its code, and a descriptor for its input; EOFError when the agent is gone."""
        fds = array.array("i")
        sock = self._checked()
        data, ancillary, _, _ = sock.recvmsg(_REQUEST, _CMSG_SPACE, socket.MSG_CMSG_CLOEXEC)
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        size = int.from_bytes(data[:4], "big")
        while data and len(data) < 4 + size:
            data += sock.recv(_REQUEST)
        if not data or not fds:
            raise EOFError
        body, (code,) = unpack_message(data[4:] if size else slurp(fds[1]))
        return body, code, fds[0]

    def send(self, body: dict[str, Any], attachments: tuple[bytes, ...] = (), *, wait: bool = False) -> None:
        """One whole message to the agent, whatever signals arrive meanwhile; ``wait`` until it was taken."""
        packed = pack_message(body, attachments)
        with self._interrupts.shielded(), self._lock:
            self._checked().sendall(len(packed).to_bytes(4, "big") + packed)
            if wait:
                with contextlib.suppress(OSError):
                    _wait(self._taken)

    def display(self, kind: str, bundle: dict[str, Any], metadata: dict[str, Any], display_id: object = None) -> None:
        """Send a MIME bundle; binary representations and long texts travel as bytes."""
        if self._sock is None or not self.number:
            return
        data: dict[str, Any] = {}
        binary: dict[str, bytes] = {}
        texts: dict[str, bytes] = {}
        room = MAX_ITEM
        for mime, value in bundle.items():
            mime = str(mime)[:200]
            size = len(value) if isinstance(value, (str, bytes)) else 0
            room -= size
            if room < 0:
                room += size
                data["text/plain"] = f"<{mime} of {size} bytes: too large to show, the limit is {MAX_ITEM} in all>"
            elif isinstance(value, bytes):
                binary[mime] = value
            elif isinstance(value, str) and size > LONG_TEXT:
                texts[mime] = value.encode("utf-8", "replace")
            else:
                data[mime] = value
        for mime in [m for m, v in data.items() if not isinstance(v, str)]:
            try:
                data[mime] = _plain(data[mime])
            except _TooDeepError:
                del data[mime]
                data["text/plain"] = f"<{mime} nested too deep to show, the limit is {MAX_NESTING} levels>"
                continue
            text = _dumps(data[mime])
            if len(text) > MAX_ITEM // 8:
                data[mime] = f"<{mime} of {len(text)} bytes: too large to show>"
        try:
            metadata = _plain(metadata)
        except _TooDeepError:
            metadata = {}
        self._flush()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        body = {
            "op": "display", "n": self.number, "kind": kind, "data": data, "binary": list(binary),
            "texts": list(texts), "metadata": metadata,
            "display_id": None if display_id is None else str(display_id)[:200],
        }  # fmt: skip
        self.send(body, (*binary.values(), *texts.values()), wait=True)


def slurp(fd: int) -> bytes:
    """All that a descriptor gives; it is closed then."""
    parts = []
    try:
        while data := _read(fd, 1 << 16):
            parts.append(data)
    finally:
        _close(fd)
    return b"".join(parts)


class _TooDeepError(Exception):
    """Nested deeper than the host takes."""


def _plain(value: Any) -> Any:
    """Only what JSON can say; anything else as its text. Raises _TooDeepError."""
    try:
        plain = _loads(_dumps(value, default=str, allow_nan=True))
    except RecursionError:
        raise _TooDeepError from None
    except (TypeError, ValueError):
        return str(type(value))
    if too_deep(plain):
        raise _TooDeepError
    return plain
