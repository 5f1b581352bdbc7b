"""Cases 6 and 57, and the sockets of case 13: nothing on the host or in another sandbox can be reached.

The host listens and counts. Control: a launch that shares the host's network reaches both listeners.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.hostile.conftest import Weaken
from tests.hostile.support import outside
from tests.hostile.support.place import Place

REACH = """
import glob, os, socket
def attempt(kind, address):
    with socket.socket(kind, socket.SOCK_STREAM) as sock:
        sock.settimeout(2)
        try:
            sock.connect(address)
            sock.sendall(b"x")
        except OSError:
            pass
attempt(socket.AF_UNIX, "\\0{name}")
attempt(socket.AF_INET, ("127.0.0.1", {port}))
for path in ("/var/run/docker.sock", "/run/containerd/containerd.sock", {path!r}, "/mnt/socket"):
    attempt(socket.AF_UNIX, path)
for port in (2375, 2376, 8000, 53):
    attempt(socket.AF_INET, ("127.0.0.1", port))
print(len(open("/proc/net/unix").readlines()) - 1, sorted(os.listdir("/sys/class/net")) if os.path.isdir(
    "/sys/class/net") else [], [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]])
"""


@dataclass
class Canary:
    """Listeners of the host and how often somebody came."""

    name: str = field(default_factory=lambda: f"foliobox-canary-{secrets.token_hex(6)}")
    port: int = 0
    path: str = ""
    visits: list[str] = field(default_factory=list)

    def attack(self) -> str:
        """The cell that tries to come."""
        return REACH.format(name=self.name, port=self.port, path=self.path)


@pytest.fixture
def canary(host_folder: Path) -> Iterator[Canary]:
    """Three listeners: abstract, TCP on loopback, and a path."""
    made = Canary(path=str(host_folder / "socket"))
    with contextlib.ExitStack() as stack:
        sockets = {}
        for kind, family, address in (
            ("abstract", socket.AF_UNIX, f"\0{made.name}"),
            ("tcp", socket.AF_INET, ("127.0.0.1", 0)),
            ("path", socket.AF_UNIX, made.path),
        ):
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.bind(address)
            listener.listen()
            sockets[kind] = listener
        Path(made.path).chmod(0o777)
        made.port = sockets["tcp"].getsockname()[1]

        def serve(kind: str, listener: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()
                    made.visits.append(kind)

        threads = [threading.Thread(target=serve, args=item, daemon=True) for item in sockets.items()]
        for thread in threads:
            thread.start()
        yield made
        for listener in sockets.values():
            listener.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(5)


def test_no_listener_of_the_host_is_reached(strong: Place, canary: Canary) -> None:
    told = strong.say(canary.attack())
    assert told == "0 [] ['lo']\n" or "['lo']" in told
    assert canary.visits == []


def test_control_a_shared_network_reaches_the_host(weaken: Weaken, canary: Canary) -> None:
    weaken("shared_network").say(canary.attack())
    outside.wait_for(lambda: {"abstract", "tcp"} <= set(canary.visits), "visits through the shared network")


def test_control_a_bound_socket_is_reached(weaken: Weaken, canary: Canary, host_folder: Path) -> None:
    weaken("host_folder", folder=host_folder).say(canary.attack())
    outside.wait_for(lambda: "path" in canary.visits, "a visit through the bound folder")
