"""Starts of the service that die and are followed by another, over real agents that live on between them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from pathlib import Path
from typing import Any, cast

from runner.agent import loader
from runner.agent.system import processes
from runner.backends.base import Backend, BackendReport
from runner.conversations.assignments import Assignments
from runner.conversations.config import ConversationsConfig
from runner.conversations.conversation import Conversation
from runner.conversations.runs import Running
from runner.conversations.service import ConversationService
from runner.errors import BackendUnavailable, SandboxLost
from runner.limits.config import LimitsConfig
from runner.model import RunRequest, SandboxLimits, SandboxSpec, SandboxUsage
from runner.workspace.base import Store
from runner.workspace.config import WorkspaceConfig
from runner.workspace.owners import Owners
from runner.workspace.workspaces import Workspaces

T = "default"
NEVER = 3600.0


class Box:
    """An agent as a process, with pipes whose other ends the test keeps, so that it does not notice a host's end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        into, self.write = os.pipe()
        self.read, out = os.pipe()
        config = json.dumps({"root": str(folder / "work"), "python": sys.executable})
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), "MPLBACKEND": "Agg", "PYTHONUTF8": "1"}
        command = [sys.executable, "-I", "-S", "-c", loader.LOADER, "foliobox_agent.server", config]
        self.process = subprocess.Popen(command, stdin=into, stdout=out, env=env)
        for fd in (into, out):
            os.close(fd)
        self.root = folder / "work"

    async def streams(self) -> tuple[StreamReader, StreamWriter, list[asyncio.BaseTransport]]:
        """Its stdio for one more host."""
        loop, reader = asyncio.get_running_loop(), StreamReader()
        out, _ = await loop.connect_read_pipe(lambda: StreamReaderProtocol(reader), os.fdopen(os.dup(self.read), "rb"))
        into, protocol = await loop.connect_write_pipe(
            lambda: StreamReaderProtocol(StreamReader()), os.fdopen(os.dup(self.write), "wb")
        )
        return reader, StreamWriter(into, protocol, None, loop), [out, into]

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def end(self) -> None:
        """End the agent and all that it started: here no namespace takes that along."""
        if self.running:
            for pid in _family(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Give the pipes back as well: now the rest of it ends too."""
        self.end()
        for fd in (self.read, self.write):
            os.close(fd)


def _family(first: int) -> list[int]:
    """A process and its descendants, from the top."""
    seen, found = processes(), [first]
    for parent in found:
        found += [pid for pid, above in seen.items() if above == parent]
    return found


class Attachment:
    """A sandbox as one start of the service has it. Of one that was killed nothing more is to be seen."""

    orphan_s: float | None = NEVER

    def __init__(self, name: str, box: Box, streams: tuple[StreamReader, StreamWriter, list[Any]]) -> None:
        self.sandbox_id, self.box = name, box
        self.reader, self.writer, self._transports = streams
        self.dead = False

    async def usage(self) -> SandboxUsage:
        """Nothing was ever killed for memory."""
        return SandboxUsage(oom_kills=0)

    async def reset_peak(self) -> None:
        """Not measured."""

    async def detach(self) -> None:
        """Let go."""
        for transport in self._transports:
            transport.close()

    async def destroy(self) -> None:
        """End it, unless this host is dead itself."""
        if not self.dead:
            self.box.end()
        await self.detach()


class Engine:
    """A backend whose sandboxes outlive the service."""

    name = "lab"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boxes: dict[str, Box] = {}
        self.attached: dict[str, Attachment] = {}
        self.hangs = self.fails = False

    async def create(self, spec: SandboxSpec) -> Attachment:
        """Start an agent."""
        self.boxes[spec.sandbox_id] = Box(self.folder / spec.sandbox_id)
        attachment = await self._connect(spec.sandbox_id)
        attachment.writer.write(loader.bundle())
        return attachment

    async def survivors(self) -> list[str]:
        """Those that run."""
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise BackendUnavailable("the engine does not answer")
        return [name for name, box in self.boxes.items() if box.running]

    async def attach(self, sandbox_id: str) -> Attachment:
        """Again."""
        if not self.boxes[sandbox_id].running:
            raise SandboxLost("gone")
        return await self._connect(sandbox_id)

    async def _connect(self, name: str) -> Attachment:
        self.attached[name] = Attachment(name, self.boxes[name], await self.boxes[name].streams())
        return self.attached[name]

    async def sweep(self) -> int:
        """End what nobody attached to."""
        left = [box for name, box in self.boxes.items() if box.running and name not in self.attached]
        for box in left:
            box.end()
        return len(left)

    @property
    def running(self) -> int:
        """How many agents there are."""
        return sum(box.running for box in self.boxes.values())

    def cut(self) -> None:
        """The service was killed."""
        for attachment in self.attached.values():
            attachment.dead = True
        self.attached.clear()

    def close(self) -> None:
        """Leave nothing."""
        for box in self.boxes.values():
            box.close()


class Door:
    """A store, or notes, until the service is killed: what is asked of them then never comes to an end.

    ``stops`` are words, of the call and of its keys: what has all of them never begins; ``reached`` says that it came.
    """

    def __init__(self, inside: Any) -> None:
        self._inside = inside
        self.dead = False
        self.stops: set[str] = set()
        self.reached = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inside, name)
        if not inspect.iscoroutinefunction(real):
            return real

        async def guarded(*arguments: Any, **named: Any) -> Any:
            said = " ".join([name, *(str(one)[:500] for one in arguments)])
            if self.dead or any(all(word in said for word in stop.split()) for stop in self.stops):
                self.reached.set()
                await asyncio.Event().wait()
            return await real(*arguments, **named)

        return guarded


class Start:
    """One start of the service; ``kill`` ends it as SIGKILL would."""

    def __init__(self, data: Path, store: Store, engine: Engine, number: int, **config: Any) -> None:
        self.engine = engine
        self.store, self.notes = Door(store), Door(Assignments(data / "sandboxes"))
        self._others = asyncio.all_tasks()
        self._owners = Owners(cast(Store, self.store), f"r{number}")
        self.service = ConversationService(
            cast(Backend, engine),
            BackendReport("lab", True),
            Workspaces(cast(Store, self.store), WorkspaceConfig(data)),
            self._owners,
            ConversationsConfig(**{"pool_size": 0, "max_live": 8, **config}),
            LimitsConfig(SandboxLimits()),
            assignments=cast(Assignments, self.notes),
        )

    async def begun(self) -> Start:
        """Start."""
        await self._owners.start(exclusive=True)
        await self.service.start()
        return self

    async def __aenter__(self) -> Start:
        return await self.begun()

    async def __aexit__(self, *_: object) -> None:
        if not self.store.dead:
            await self.service.close()

    async def kill(self) -> None:
        """Nothing of it happens any more."""
        self.store.dead = self.notes.dead = True
        self.engine.cut()
        mine = asyncio.all_tasks() - self._others - {asyncio.current_task()}
        for task in mine:
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await asyncio.gather(*mine, return_exceptions=True)

    async def begin(self, conversation: str, code: str, **named: Any) -> Running:
        """Begin a run."""
        fields = {name: named.pop(name) for name in ("language", "fresh", "timeout_ms", "limits") if name in named}
        return await self.service.begin(T, conversation, RunRequest(code, **fields), **named)

    async def run(self, conversation: str, code: str, **named: Any) -> Any:
        """Run to the end."""
        async with asyncio.timeout(60):
            return await (await self.begin(conversation, code, **named)).result()

    async def said(self, running: Running, text: str) -> None:
        """Until a run has printed something."""
        async with asyncio.timeout(60):
            async for event in running.log.follow():
                if text in event.data.get("text", ""):
                    return
        raise AssertionError(f"never said {text!r}")

    async def talk(self, conversation: str) -> Conversation:
        """A conversation."""
        return await self.service.find(T, conversation)

    async def upload(self, conversation: str, path: str, content: bytes) -> None:
        """Store a file."""
        workspace = (await self.service.ensure(T, conversation))[0].workspace
        async with workspace.stage() as staging:
            await staging.write(content)
            await workspace.put(path, staging)
