"""A private dockerd: folders, socket and runtimes of its own, no bridge and no rules, stopped by its pid.

Its data stay in the cache, so that images are built once. Everything else lies in a temporary folder that also
tells its processes from others: a run that was killed leaves the name of that folder, and the next one cleans up.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.engines import docker, packages, processes
from tests.support.engines.packages import Unavailable

PREFIX = "foliobox-docker-"
START_S = 60.0
STOP_S = 45.0
# What gVisor needs on hosts that allow neither KVM nor systrap. The container's network is none all the same.
WRAPPER = '#!/bin/sh\nexec {runsc} --platform=ptrace --network=host "$@"\n'


class Daemon:
    """One dockerd. ``home`` is its folder in the cache, kept between runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.log = self.folder / "dockerd.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """As in ``DOCKER_HOST``."""
        return f"unix://{self.folder}/docker.sock"

    def command(self) -> list[str]:
        """The daemon's own; a signal ends it when whoever started it is gone."""
        dockerd = packages.on_path("dockerd")
        assert dockerd is not None
        return [
            "setpriv", "--pdeathsig", "TERM", dockerd,
            "--config-file", f"{self.folder}/daemon.json", "--data-root", f"{self.home}/data",
            "--exec-root", f"{self.folder}/exec", "--pidfile", f"{self.folder}/docker.pid",
            "--host", self.address, "--group", "root", "--bridge", "none", "--iptables=false",
            "--containerd-namespace", "foliobox-tests", "--containerd-plugins-namespace", "foliobox-tests-plugins",
        ]  # fmt: skip

    def start(self) -> None:
        """Start, and wait until it answers. Raises Unavailable with the end of its log."""
        wrapper = self.folder / "runsc-wrapper"
        wrapper.write_text(WRAPPER.format(runsc=packages.on_path("runsc")))
        wrapper.chmod(0o755)
        runtimes = {"runsc": {"path": str(wrapper)}}
        (self.folder / "daemon.json").write_text(json.dumps({"runtimes": runtimes}))
        (self.home / "folder").write_text(str(self.folder))
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_S
        while not answers(self.address):
            if self._process.poll() is not None or time.monotonic() > deadline:
                end = self.log.read_text(errors="replace")[-1500:]
                raise Unavailable(f"dockerd did not start here; its log ends with:\n{end}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it and all it started, by its pid first; then take away what lies around. Idempotent."""
        if self._process is not None and self._process.poll() is None:
            self._remove_containers()
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        clean(self.folder, self.home)
        if self._process is not None:
            self._process.wait(10)

    def _remove_containers(self) -> None:
        """Those that tests left; each is named, because none should be."""
        with contextlib.suppress(docker.DockerFailed, subprocess.TimeoutExpired):
            left = docker.lines("ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}", address=self.address)
            if left:
                print(
                    f"engines for tests: containers were left: {', '.join(row.split()[1] for row in left)}", flush=True
                )
                docker.docker("rm", "--force", "--volumes", *(row.split()[0] for row in left), address=self.address)


def answers(address: str) -> bool:
    """Whether an engine is there."""
    command = ["docker", "--host", address, "version", "--format", "{{.Server.Version}}"]
    return subprocess.run(command, check=False, capture_output=True, timeout=30).returncode == 0


def clean(folder: Path, home: Path) -> bool:
    """Remove an engine's processes, mounts, groups and temporary folder; whether any process was there."""
    found = processes.end(folder)
    processes.unmount(folder, home / "data")
    for container in (home / "data/containers").glob("*"):
        processes.remove_groups(container.name)
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        if (home / "folder").read_text() == str(folder):
            (home / "folder").unlink()
    return found


@contextlib.contextmanager
def alone(home: Path) -> Iterator[None]:
    """The only user of an engine's folder in the cache; leftovers of one that was killed are gone."""
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    with open(home / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"engines for tests: another run uses {home}; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            left = Path((home / "folder").read_text())
            if left.name.startswith(PREFIX) and clean(left, home):
                print(f"engines for tests: ended the engine of a run that was killed ({left})", flush=True)
        yield


@contextlib.contextmanager
def private(home: Path) -> Iterator[Daemon]:
    """A daemon for the length of a block, alone on its folder. Raises Unavailable."""
    with alone(home):
        daemon = Daemon(home)
        try:
            daemon.start()
            yield daemon
        finally:
            daemon.stop()
