"""Starts sandboxes with bubblewrap and ends them; what a dead runner left is found by records and swept."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from asyncio import StreamReader, StreamWriter
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from runner.agent import loader
from runner.backends.base import BackendReport, agent_command, agent_environment
from runner.backends.bubblewrap import args, probe, seccomp
from runner.backends.bubblewrap.cgroup import Group, Parents, find_parents
from runner.backends.bubblewrap.config import UID_BASE, UID_COUNT, BubblewrapConfig
from runner.errors import BackendUnavailable
from runner.model import SandboxSpec, SandboxUsage

_STDERR_KEEP = 4096


class BubblewrapSandbox:
    """A jail with the agent as its PID 1."""

    def __init__(self, sandbox_id: str, process: Process, group: Group, record: Path) -> None:
        assert process.stdout is not None and process.stdin is not None and process.stderr is not None
        self._id = sandbox_id
        self._process, self._group, self._record = process, group, record
        self._reader, self._writer = process.stdout, process.stdin
        self._stderr = b""
        self._listener = asyncio.create_task(self._listen(process.stderr))
        self._destroyed: asyncio.Task[None] | None = None

    @property
    def sandbox_id(self) -> str:
        return self._id

    @property
    def reader(self) -> StreamReader:
        return self._reader

    @property
    def writer(self) -> StreamWriter:
        return self._writer

    @property
    def last_words(self) -> str:
        """The end of what the launch chain wrote to its standard error."""
        return self._stderr.decode("utf-8", "replace").strip()

    async def usage(self) -> SandboxUsage:
        return self._group.usage()

    async def reset_peak(self) -> None:
        self._group.reset_peak()

    async def destroy(self) -> None:
        if self._destroyed is None:
            self._destroyed = asyncio.create_task(self._destroy())
        await asyncio.shield(self._destroyed)

    async def _destroy(self) -> None:
        await asyncio.to_thread(self._group.kill)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._writer.close()
        self._listener.cancel()
        if await asyncio.to_thread(self._group.remove):
            self._record.unlink(missing_ok=True)

    async def _listen(self, stderr: StreamReader) -> None:
        while data := await stderr.read(_STDERR_KEEP):
            self._stderr = (self._stderr + data)[-_STDERR_KEEP:]


class BubblewrapBackend:
    """The embedded backend. Use it from one long-lived thread: sandboxes die with the thread that spawned them."""

    name = "bubblewrap"

    def __init__(self, config: BubblewrapConfig) -> None:
        self._config = config
        self._parents: Parents | None = None
        self._uids: set[int] = set()

    async def probe(self) -> BackendReport:
        return await asyncio.to_thread(probe.probe, self._config, self.parents)

    @property
    def parents(self) -> Parents:
        """Where this runner may make control groups; looked up once."""
        if self._parents is None:
            self._parents = find_parents()
        return self._parents

    async def create(self, spec: SandboxSpec) -> BubblewrapSandbox:
        if self._config.bwrap is None:
            raise BackendUnavailable("bubblewrap is not installed: install the package bubblewrap")
        uid = self._take_uid() if self._config.privileged else None
        group, fds = Group({}), list[int]()
        record = self._config.state / f"{spec.sandbox_id}.json"
        try:
            group = await asyncio.to_thread(Group.create, self.parents, spec.sandbox_id, spec.limits)
            self._config.state.mkdir(parents=True, exist_ok=True, mode=0o700)
            record.write_text(json.dumps({"groups": group.folders, "uid": uid}))
            filter_fd = _memory_file("seccomp", seccomp.program())
            fds.append(filter_fd)
            rootfs = str(self._config.rootfs.resolve(strict=True))
            options = args.options(rootfs, spec.limits, agent_environment(spec.limits), filter_fd)
            fds.append(_memory_file("options", b"".join(option.encode() + b"\0" for option in options)))
            payload = agent_command(
                self._config.agent_python, {"root": "/workspace", "python": self._config.python}
            )
            command = args.command(self._config.bwrap, fds[1], payload, spec.limits, uid, group.procs)
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, pass_fds=fds, env={"PATH": "/usr/bin:/bin"}, cwd="/"
            )
        except OSError as error:
            await asyncio.to_thread(group.remove)
            record.unlink(missing_ok=True)
            raise BackendUnavailable(
                "bubblewrap could not be started: run `foliobox doctor` to see which part is missing",
                cause=repr(error),
            ) from error
        finally:
            for fd in fds:
                os.close(fd)
        sandbox = BubblewrapSandbox(spec.sandbox_id, process, group, record)
        sandbox.writer.write(loader.bundle())
        return sandbox

    async def sweep(self) -> int:
        return await asyncio.to_thread(self._sweep)

    def _sweep(self) -> int:
        count = 0
        for record in sorted(self._config.state.glob("*.json")):
            with contextlib.suppress(OSError, ValueError):
                Group.reopen(json.loads(record.read_text())["groups"]).remove()
            record.unlink(missing_ok=True)
            count += 1
        return count

    def _take_uid(self) -> int:
        """A host uid that no other sandbox of this runner has had."""
        while True:
            uid = UID_BASE + secrets.randbelow(UID_COUNT)
            if uid not in self._uids:
                self._uids = self._uids | {uid} if len(self._uids) < UID_COUNT // 2 else {uid}
                return uid


def _memory_file(name: str, content: bytes) -> int:
    fd = os.memfd_create(name, 0)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
