"""Floors and the peer: what the machine itself costs, and what the usual way to run cells costs on it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from bench.lab import Lab
from bench.stats import Sample, repeat

_LIMIT_S = 60.0
_ECHO = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1]))\nwhile d := s.recv(64): s.sendall(d)"


def python_start(lab: Lab) -> Sample:
    """A Python process that does nothing."""
    return repeat(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True), lab.count(20, 5), 1)


def bwrap_true(lab: Lab) -> Sample:
    """A jail that does nothing. Raises FileNotFoundError without bubblewrap."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise FileNotFoundError("bubblewrap is not installed: install the package bubblewrap")
    command = [bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"]
    return repeat(lambda: subprocess.run(command, check=True), lab.count(20, 5), 1)


def socket_echo(lab: Lab) -> Sample:
    """A byte to another process and back over a Unix socket."""
    here, there = socket.socketpair()
    command = [sys.executable, "-c", _ECHO, str(there.fileno())]
    with here, subprocess.Popen(command, pass_fds=[there.fileno()]) as process:
        there.close()

        def once() -> None:
            here.sendall(b"x")
            here.recv(64)

        sample = repeat(once, lab.count(1000, 200), 20)
        here.close()
        process.wait(_LIMIT_S)
    return sample


def livez(lab: Lab) -> Sample:
    """The service's least answer."""
    with lab.service().client() as client:
        return repeat(lambda: client.call("GET", "/livez"), lab.count(500, 100), 20)


def jupyter_cold(lab: Lab) -> Sample:
    """A new kernel until its first cell is done."""
    kernels: list[Kernel] = []

    def once() -> None:
        kernels.append(Kernel())
        kernels[-1].run("print(1)")

    try:
        return repeat(once, lab.count(5, 2))
    finally:
        for kernel in kernels:
            kernel.close()


def jupyter_warm(lab: Lab) -> Sample:
    """A cell in a kernel that has run some."""
    with Kernel() as kernel:
        return repeat(lambda: kernel.run("print(1)"), lab.count(300, 60), 20)


class Kernel:
    """An ipykernel process spoken to with jupyter_client over its default transport (TCP on loopback)."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="foliobox-bench-kernel-")
        place = Path(self._folder.name)
        self._manager = KernelManager(connection_file=str(place / "kernel.json"))
        self._client: BlockingKernelClient | None = None
        env = {**os.environ, "IPYTHONDIR": str(place), "JUPYTER_RUNTIME_DIR": str(place)}
        try:
            self._manager.start_kernel(env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self._client = self._manager.blocking_client()
            self._client.start_channels()
            self._client.wait_for_ready(timeout=_LIMIT_S)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, code: str) -> None:
        """Run a cell until the kernel is idle again and has replied, as a client must that wants its output."""
        assert self._client is not None
        number = self._client.execute(code)
        idle = False
        while not idle:
            message = self._client.get_iopub_msg(timeout=_LIMIT_S)
            mine = message["parent_header"].get("msg_id") == number
            idle = mine and message["content"].get("execution_state") == "idle"
        self._client.get_shell_msg(timeout=_LIMIT_S)

    def close(self) -> None:
        """End the kernel."""
        if self._client is not None:
            self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()
        self._folder.cleanup()
