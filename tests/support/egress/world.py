"""Two network namespaces: the proxy's, and an outer world behind it with public and private addresses.

Only the proxy has a way to the world. The host has one to the proxy's port, over interfaces of the
test's own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.waiting import until

REPOSITORY = Path(__file__).resolve().parents[3]
START = REPOSITORY / "images/egress/start.sh"
TEMPLATE = REPOSITORY / "images/egress/squid.conf"
SERVERS = Path(__file__).with_name("servers.py")
ALLOWED, DENIED, RESOLVER = "93.184.216.34", "93.184.216.35", "93.184.216.53"
ALLOWED6, PRIVATE6 = "2606:2800:220:1::34", "fd00:ec2::254"
PRIVATE = ("10.99.0.1", "192.168.77.7", "172.20.1.1", "169.254.169.254", "100.100.100.200", "198.18.0.9", "203.0.113.9")
NAMES = (
    "allowed.test .below.test private.test metadata.test cgnat.test mixed.test rebind.test six.test plainsix.test "
    "own.test own6.test cloud.test as112.test"
)
PREFIX = "foliobox-egress-"
SETTLED_S = 60.0
ZONE = {
    "allowed.test": [[ALLOWED]],
    "a.below.test": [[ALLOWED]],
    "evilallowed.test": [[DENIED]],
    "allowed.test.evil.test": [[DENIED]],
    "denied.test": [[DENIED]],
    "private.test": [["10.99.0.1"]],
    "metadata.test": [["169.254.169.254"]],
    "cgnat.test": [["100.100.100.200"]],
    "mixed.test": [[ALLOWED, "10.99.0.1"]],
    "rebind.test": [[ALLOWED], ["10.99.0.1"]],
    "six.test": [[PRIVATE6]],
    "own.test": [["93.184.216.1"]],
    "own6.test": [["2606:2800:220:1::1"]],
    "cloud.test": [["168.63.129.16"]],
    "as112.test": [["192.175.48.1"]],
    "plainsix.test": [[ALLOWED6]],
}


def ip(*arguments: str) -> None:
    """A command of iproute2. Raises CalledProcessError."""
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@dataclass
class World:
    """``proxy`` is the URL of squid as the host reaches it."""

    folder: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(2))
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _squid: subprocess.Popen[bytes] | None = None

    @property
    def inner(self) -> str:
        """Name of the proxy's namespace."""
        return f"fbx-{self.mark}-proxy"

    @property
    def outer(self) -> str:
        """Name of the world's namespace."""
        return f"fbx-{self.mark}-world"

    @property
    def net(self) -> str:
        """The first three bytes of the addresses between host and proxy."""
        return f"10.{200 + int(self.mark[:2], 16) % 50}.{int(self.mark[2:], 16)}"

    @property
    def proxy(self) -> str:
        """As in SANDBOX_EGRESS_PROXY."""
        return f"http://{self.net}.2:3128"

    def make(self) -> None:
        """Namespaces, interfaces, addresses, servers."""
        ip("netns", "add", self.inner)
        ip("netns", "add", self.outer)
        ip("link", "add", f"fh{self.mark}", "type", "veth", "peer", "name", "host", "netns", self.inner)
        ip("-n", self.inner, "link", "add", "out", "type", "veth", "peer", "name", "in", "netns", self.outer)
        ip("addr", "add", f"{self.net}.1/30", "dev", f"fh{self.mark}")
        ip("link", "set", f"fh{self.mark}", "up")
        for address, device, space in (
            (f"{self.net}.2/30", "host", self.inner),
            ("93.184.216.1/24", "out", self.inner),
            ("2606:2800:220:1::1/64", "out", self.inner),
            *((f"{one}/32", "lo", self.outer) for one in PRIVATE),
            (f"{PRIVATE6}/128", "lo", self.outer),
            *((f"{one}/24", "in", self.outer) for one in (ALLOWED, DENIED, RESOLVER)),
            (f"{ALLOWED6}/64", "in", self.outer),
        ):
            ip("-n", space, "addr", "add", address, "dev", device, *(("nodad",) if ":" in address else ()))
        for space, devices in ((self.inner, ("lo", "host", "out")), (self.outer, ("lo", "in"))):
            for device in devices:
                ip("-n", space, "link", "set", device, "up")
        ip("-n", self.inner, "route", "add", "default", "via", ALLOWED)
        ip("-n", self.inner, "-6", "route", "add", "default", "via", ALLOWED6)
        ip("-n", self.outer, "route", "add", f"{self.net}.0/24", "via", "93.184.216.1")
        self._serve()

    def _serve(self) -> None:
        zone = self.folder / "zone.json"
        zone.write_text(json.dumps(ZONE))
        (self.folder / "hits.files").mkdir()
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.outer, "setpriv", "--pdeathsig", "KILL", sys.executable, "-I", str(SERVERS),
             str(self.folder / "hits"), str(zone), RESOLVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"

    def start_proxy(self, *without: str, allow: str = NAMES, ports: str = "") -> None:
        """Squid as its image starts it; ``without`` names rules of its configuration that a control takes out."""
        self.stop_proxy()
        run = self.folder / f"squid-{secrets.token_hex(3)}"
        run.mkdir()
        lines = TEMPLATE.read_text().splitlines(keepends=True)
        gone = {f"http_access deny {rule}\n" for rule in without}
        assert gone <= set(lines), without
        template = run / "template.conf"
        text = "".join(line for line in lines if line not in gone)
        if "!names" in without:
            text = text.replace("http_access allow names\nhttp_access deny all", "http_access allow all")
        template.write_text(text)
        shutil.chown(run, "proxy", "proxy")
        env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "EGRESS_ALLOW": allow, "EGRESS_DNS": RESOLVER,
            "EGRESS_PORTS": ports,
            "EGRESS_FOLDER": str(run), "EGRESS_TEMPLATE": str(template), "EGRESS_LOG": f"stdio:{run}/decisions",
        }  # fmt: skip
        self.decisions = run / "decisions"
        with open(run / "err", "wb") as err:
            self._squid = subprocess.Popen(
                ["ip", "netns", "exec", self.inner, "setpriv", "--reuid", "proxy", "--regid", "proxy", "--clear-groups",
                 "--pdeathsig", "KILL", "--no-new-privs", "/bin/sh", str(START)],
                stdin=subprocess.DEVNULL, stdout=err, stderr=err, env=env,
            )  # fmt: skip
        squid = self._squid

        def up() -> bool:
            assert squid.poll() is None, (run / "err").read_text()[-2000:]
            return self.listens()

        until(up, "squid takes connections", 30)

    def listens(self) -> bool:
        """Whether something takes connections at the proxy's address."""

        with contextlib.suppress(OSError), socket.create_connection((f"{self.net}.2", 3128), 0.5):
            return True
        return False

    def stop_proxy(self) -> None:
        """End squid by its pid."""
        if self._squid is not None and self._squid.poll() is None:
            self._squid.send_signal(signal.SIGKILL)
        if self._squid is not None:
            self._squid.wait(10)

    def hits(self, **of: object) -> list[dict[str, Any]]:
        """What has arrived in the world, as far as it fits.

        Squid looks up the name of whoever connects to it, which is nothing that a sandbox says: that is left out.
        """
        try:
            lines = (self.folder / "hits").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = [hit for line in lines if not str((hit := json.loads(line)).get("name")).endswith(".arpa")]
        return [hit for hit in found if all(hit.get(name) == value for name, value in of.items())]

    def forget(self) -> None:
        """Begin to count anew."""
        (self.folder / "hits").unlink(missing_ok=True)

    @contextlib.contextmanager
    def reachable_from_host(self) -> Iterator[None]:
        """For controls: the host has a route through the proxy's namespace, which passes on."""
        subprocess.run(
            ["ip", "netns", "exec", self.inner, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True
        )
        routes = ["93.184.216.0/24", "10.99.0.1/32"]
        try:
            for route in routes:
                ip("route", "add", route, "via", f"{self.net}.2")
            yield
        finally:
            for route in routes:
                subprocess.run(["ip", "route", "del", route, "via", f"{self.net}.2"], check=False, capture_output=True)
            subprocess.run(
                ["ip", "netns", "exec", self.inner, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/ip_forward"], check=True
            )

    def end(self) -> None:
        """Take everything away."""
        self.stop_proxy()
        for process in self._processes:
            process.kill()
            process.communicate(timeout=10)  # closes its pipes
        for name in (self.inner, self.outer):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", f"fh{self.mark}"], check=False, capture_output=True)


@contextlib.contextmanager
def world() -> Iterator[World]:
    """A world with squid in it, for the length of a block. What one left that was killed is taken away first."""
    _sweep()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    os.chmod(folder, 0o755)
    made = World(folder)
    with open(folder / f"lock-{made.mark}", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            made.make()
            made.start_proxy()
            yield made
        finally:
            made.end()
            shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """End worlds whose lock nobody holds: their processes have ended with their test, by a signal of the kernel."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock-*"):
        with contextlib.suppress(OSError), open(path) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_mtime < time.time() - SETTLED_S:  # one that is just being made has no lock yet
                World(path.parent, path.name.removeprefix("lock-")).end()
                shutil.rmtree(path.parent, ignore_errors=True)
