"""The agent: PID 1 of a sandbox; speaks the framed stream on its stdio and owns everything inside.

One thread, one loop over readable descriptors and due timers. It reads nothing that user code wrote
except as bounded, validated messages, and runs no user code itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys

from . import egress, identity, system
from .children import Reaper
from .execution import KILL_LIMIT_S, Execution
from .files import Files
from .interpreters import Interpreters
from .link import Link
from .loop import Loop
from .marks import Mark
from .protocol import Json
from .tree import Tree


class Agent:
    """Puts the parts of a sandbox together and runs them."""

    def __init__(self, config: Json, bundle: bytes) -> None:
        self.loop = Loop()
        self.reaper = Reaper()
        self.link = Link(self.loop, self.leave)
        self.tree = Tree(config["root"])
        self.mark = Mark()
        self.files = Files(self.tree, self.link, self.mark)
        self.interpreters = Interpreters(self.loop, self.reaper, config, bundle)
        self.execution = Execution(self.loop, self.link, self.tree, self.reaper, self.interpreters, self.mark)
        self.link.on_hello = self._welcome
        if config.get("orphan_s") is not None:
            self.link.expect_host(config["orphan_s"])
        self.link.requests["mark"] = self._do_mark

    def serve(self) -> None:
        """Run until the host closes the stream."""
        wake, woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.loop.watch(wake, lambda: self._on_child(wake))
        self.tree.prepare()
        os.chdir(self.tree.root)
        self.interpreters.keep_one()
        while True:
            self.link.flush()
            self.execution.pump()
            self.loop.turn()

    def leave(self) -> None:
        """The host is gone for good: end everything."""
        system.kill_all((), self.reaper.reap, KILL_LIMIT_S)
        os._exit(0)

    def _welcome(self) -> Json:
        self.files.forget_uploads()
        kept = self.interpreters.kept
        return {
            "ready": kept is not None and kept.ready,
            "failed": self.interpreters.preload_failed,
            **self.mark.told(),
            "run": self.execution.report(),
        }

    def _do_mark(self, body: Json, _: list[bytes]) -> Json:
        """Keep a note for whichever host comes next (which version the files are of)."""
        self.mark.take(body)
        return {}

    def _on_child(self, wake: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        self.reaper.reap()


def main(raw: bytes, arguments: list[str]) -> None:
    """Entry point inside the sandbox: ``arguments[0]`` is the configuration as JSON."""
    config = json.loads(arguments[0])
    if config.get("uid") is not None:
        identity.hold(config["uid"])
    if config.get("nofile") is not None:
        identity.keep_files(config["nofile"])
    if config.get("door") is not None:
        egress.hand_out(config["door"], config["port"])
    signal.signal(signal.SIGINT, signal.SIG_IGN if os.getpid() != 1 else signal.SIG_DFL)
    system.become_subreaper()
    system.set_dumpable(False)
    sys.argv = ["foliobox-agent"]
    with contextlib.suppress(KeyboardInterrupt):
        Agent(config, raw).serve()
