"""A relay on loopback in front of a real service, that cuts connections where a test says."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

_PIECE = 1 << 16


@dataclass
class Relay:
    """``target`` is the service's port now. ``cuts`` holds what is looked for in answers: when the first of them comes
    its connection is cut instead of passing it on, and the next one's turn comes.
    """

    target: int
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    cuts: list[bytes] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)  # first line of each that passed
    done: int = 0  # how often it was cut
    refused: int = 0  # connections that came while nobody listened at the target
    ends: list[socket.socket] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        """Take connections until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.target))
                except ConnectionRefusedError:  # the service is not there now
                    near.close()
                    self.refused += 1
                    continue
                self.ends += [near, far]
                for source, sink, answers in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pass, args=(source, sink, answers), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        seen = b""
        with contextlib.suppress(OSError):
            while piece := source.recv(_PIECE):
                if not answers and piece.split(b" ", 1)[0] in (b"GET", b"PUT", b"POST", b"DELETE", b"HEAD"):
                    self.requests.append(piece.split(b"\r\n", 1)[0])
                seen = (seen + piece)[-_PIECE:]
                if answers and self.cuts and self.cuts[0] in seen:
                    self.cuts.pop(0)
                    self.done += 1
                    break
                sink.sendall(piece)
        _cut(source, sink)


def _cut(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextlib.contextmanager
def relay(target: int) -> Iterator[Relay]:
    """A relay to a port of loopback, for the length of a block."""
    made = Relay(target)
    serving = threading.Thread(target=made.serve, daemon=True)
    serving.start()
    try:
        yield made
    finally:
        _cut(made.listener)
        serving.join(10)
        _cut(*made.ends)
