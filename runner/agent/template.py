"""The template: imports a closed list of libraries, warms their first use, and forks interpreters.

The list holds only libraries that survive a fork; each import that fails is reported, never hidden. python-pptx,
python-docx and openpyxl are left out: 12.5 MiB in every idle conversation against 30 ms at their first use.
Interpreters are forked twice, so that the agent (a subreaper) becomes their parent and learns how they end.
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import signal
import socket
import sys
from typing import Any

from . import system
from .egress import site_packages

PRELOAD = (
    "numpy",
    "pandas",
    "matplotlib.pyplot",
    "weasyprint",
    "PIL.Image",
)
FDS_PER_FORK = 5


def _receive(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    fds = array.array("i")
    space = socket.CMSG_SPACE(FDS_PER_FORK * fds.itemsize)
    data, ancillary, _, _ = sock.recvmsg(65536, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    if not data:
        os._exit(0)
    return json.loads(data), list(fds)


def _preload() -> dict[str, str]:
    failed: dict[str, str] = {}
    for name in PRELOAD:
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"[:200]
    return failed


def _fork_interpreter(sock: socket.socket, fds: list[int], shell: Any) -> None:
    """Pid 0 is told when the sandbox has no room for a process now: the imports are worth more than one try."""
    read, write = os.pipe()
    pid = b""
    try:
        middle = os.fork()
    except OSError:
        middle = -1
    if middle:
        os.close(write)
        if middle > 0:
            pid = os.read(read, 32)
            os.waitpid(middle, 0)
        for fd in (read, *fds):
            os.close(fd)
        sock.send(json.dumps({"pid": int(pid or b"0")}).encode())
        return
    try:
        os.close(read)
        child = os.fork()
        if child:
            os.write(write, str(child).encode())
            os._exit(0)
        os.close(write)
        os.setsid()
        sock.close()
        system.set_dumpable(True)
        system.prefer_as_oom_victim(600)
        from . import cells

        cells.run_forever(shell, *fds)
    finally:
        os._exit(70)


def _add_packages(prefix: str) -> None:
    """What pip installs below ``prefix`` can be imported, behind all else; nothing of it is run here."""
    folder = site_packages(prefix)
    os.makedirs(folder, exist_ok=True)  # a folder that is not there when it is first looked at is never looked at again
    sys.path.append(folder)
    os.environ["PYTHONPATH"] = folder  # of programs that interpreters start


def main(_: bytes, arguments: list[str]) -> None:
    """Entry point of the template process: configuration as JSON, then the number of its socket."""
    config = json.loads(arguments[0])
    sock = socket.socket(fileno=int(arguments[1]))
    sock.set_inheritable(False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    system.set_dumpable(False)
    system.prefer_as_oom_victim(300)
    system.yield_to_agent()
    sys.argv = [""]
    for name in ("MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_"):
        os.environ.pop(name, None)
    os.chdir(config["root"])
    from . import cells, figures, interpreter  # noqa: F401  (cells: forks find it imported)

    figures.prepare_matplotlib()
    failed = _preload()
    shell = interpreter.make_shell(config)
    try:
        interpreter.warm(shell)
    except Exception as error:
        failed["warm-up"] = f"{type(error).__name__}: {error}"[:200]
    if config.get("packages"):
        _add_packages(config["packages"])
    gc.collect()
    gc.freeze()
    system.give_back_memory()
    try:
        sock.send(json.dumps({"op": "ready", "failed": failed}).encode())
    except BrokenPipeError:
        os._exit(0)
    while True:
        _request, fds = _receive(sock)
        if len(fds) == FDS_PER_FORK:
            _fork_interpreter(sock, fds, shell)
