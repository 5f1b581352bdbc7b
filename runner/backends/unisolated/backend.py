"""Starts sandboxes that isolate nothing, under proot; for demos and tests on hosts that refuse namespaces."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from runner.agent import loader
from runner.backends import leases, records, seccomp
from runner.backends.base import (
    WORKSPACE,
    BackendReport,
    Permission,
    Wall,
    agent_command,
    agent_environment,
    as_it_is,
    image_name,
)
from runner.backends.child import Child, ChildSandbox, WithoutSurvivors, started_or_undone
from runner.backends.unisolated import args, folders, shim
from runner.backends.unisolated.config import UnisolatedConfig
from runner.backends.unisolated.family import Family
from runner.errors import BackendUnavailable
from runner.model import SandboxSpec, SandboxUsage

WALLS = ("namespaces", "seccomp", "no-new-privileges", "own-uid", "cgroups")
NO_WALL = "SANDBOX_ALLOW_UNISOLATED=1: code runs on this host without it"
OWN_UID = "own-uid"
_START_S = 30.0
_END_S = 5.0
# What the agent needs of proot: paths, children, memory that stays readable after giving up the dumpable flag.
_LOOK = """
import ctypes, os, subprocess
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
with open("/workspace/probe", "w") as file:
    file.write("foliobox\\n")
assert os.path.isfile("/etc/foliobox/image.json") and os.stat("/workspace/probe").st_size == 9
print(subprocess.run(["/bin/cat", "/workspace/probe"], capture_output=True, check=True).stdout.decode(), end="")
"""


class UnisolatedSandbox(ChildSandbox):
    """Processes under proot with private folders on the host's disk."""

    def __init__(self, sandbox_id: str, private: Path, record: Path, lease: leases.UidLease | None) -> None:
        super().__init__(sandbox_id)
        self._private, self._record, self._lease = private, record, lease

    async def usage(self) -> SandboxUsage:
        return SandboxUsage()

    async def reset_peak(self) -> None:
        return None

    async def start(self, child: Child, bundle: bytes, noted: records.Json) -> None:
        """Note the process and hand the agent its sources. Raises OSError; then ``destroy`` is still due."""
        self._child = child
        records.write(self._record.parent, self._id, noted | {"pid": child.pid})
        await child.hand_over(bundle, _START_S)

    async def _destroy(self) -> None:
        child, gone = self._child, True
        if child is not None:
            uid = self._lease.uid if self._lease is not None else None
            gone = await asyncio.to_thread(Family(self._id, child.pid if child.running else 0, uid).kill)
            child.kill()
            await child.ended(_END_S)
            await child.close()
            await asyncio.to_thread(folders.remove_glue, child.pid, uid)
        if gone and await asyncio.to_thread(folders.remove_tree, self._private):
            with contextlib.suppress(OSError):
                self._record.unlink(missing_ok=True)
            if self._lease is not None:
                self._lease.release()


class UnisolatedBackend(WithoutSurvivors):
    """The backend without walls; only the registry decides that it may be used."""

    name = "unisolated"

    def __init__(self, config: UnisolatedConfig) -> None:
        self._config = config

    async def probe(self, allowed: Permission = as_it_is) -> BackendReport:
        if self._config.proot is None:
            return self._unavailable("proot is not installed: install the package proot")
        if not (self._config.rootfs / "etc/foliobox/image.json").is_file():
            return self._unavailable(f"no root file system at {self._config.rootfs}: run `make setup`")
        try:
            sandbox = await self._create(SandboxSpec("probe-" + os.urandom(4).hex(), self._config.limits), probing=True)
        except BackendUnavailable as error:
            return self._unavailable(f"{error.detail} ({error.cause})")
        seen = await asyncio.wait_for(sandbox.reader.read(1 << 10), _START_S)
        await sandbox.destroy()
        if seen != b"foliobox\n":
            return self._unavailable(f"proot does not work here: {sandbox.last_words or seen!r}")
        held = {OWN_UID} if self._config.privileged else set()
        walls = tuple(Wall(name, name in held, "" if name in held else NO_WALL) for name in WALLS)
        detail = "no isolation at all: for demos and tests on loopback only"
        image = image_name(self._config.rootfs)
        return allowed(BackendReport(self.name, True, "none", image, True, detail, walls, network=self._config.network))

    def _unavailable(self, detail: str) -> BackendReport:
        return BackendReport(self.name, False, "none", detail=detail, network=self._config.network)

    async def create(self, spec: SandboxSpec) -> UnisolatedSandbox:
        return await started_or_undone(self._create(spec))

    async def _create(self, spec: SandboxSpec, *, probing: bool = False) -> UnisolatedSandbox:
        if self._config.proot is None:
            raise BackendUnavailable("proot is not installed: install the package proot")
        lease = leases.take_uid() if self._config.privileged else None
        uid = lease.uid if lease is not None else None
        private = folders.planned(self._config.folders, spec.sandbox_id, uid)
        record = self._config.state / f"{spec.sandbox_id}.json"
        sandbox = UnisolatedSandbox(spec.sandbox_id, private, record, lease)
        try:
            noted = {"uid": uid, "private": str(private)}
            records.write(self._config.state, spec.sandbox_id, noted)
            folders.make(private, (*args.FOLDERS, args.GLUE), uid)
            payload = [self._config.agent_python, "-I", "-S", "-c", _LOOK] if probing else self._agent()
            child = await self._spawn(self._config.proot, spec, private, uid, payload)
            await sandbox.start(child, b"" if probing else loader.bundle(), noted)
        except Exception as error:
            await sandbox.destroy()
            cause = "; ".join(filter(None, (f"{type(error).__name__}: {error}", sandbox.last_words)))
            raise BackendUnavailable("proot could not start the agent", cause=cause) from error
        return sandbox

    def _agent(self) -> list[str]:
        return agent_command(self._config.agent_python, {"root": WORKSPACE, "python": self._config.python})

    async def _spawn(self, proot: str, spec: SandboxSpec, private: Path, uid: int | None, payload: list[str]) -> Child:
        rootfs = str(self._config.rootfs.resolve(strict=True))
        launcher = [self._config.launcher, "-I", "-S", shim.__file__]
        fd = os.memfd_create("filter", os.MFD_CLOEXEC)
        try:
            os.write(fd, seccomp.compatible())
            os.lseek(fd, 0, os.SEEK_SET)
            command = args.command(launcher, proot, rootfs, private, payload, spec.limits, uid, fd)
            env = args.environment(agent_environment(spec.limits), spec.sandbox_id, private)
            return await Child.start(command, (fd,), env)
        finally:
            os.close(fd)

    async def sweep(self) -> int:
        return await asyncio.to_thread(records.sweep, self._config.state, _end_leftover)


def _end_leftover(name: str, record: records.Json) -> bool:
    """End what a dead runner's record names. Its uid counts only while no living sandbox was given it since."""
    uid = record.get("uid")
    own = uid if isinstance(uid, int) and leases.UID_BASE <= uid < leases.UID_BASE + leases.UID_COUNT else None
    lease = leases.hold_uid(own) if own is not None else None
    try:
        if not Family(name, 0, lease.uid if lease is not None else None).kill():
            return False
    finally:
        if lease is not None:
            lease.release()
    private = folders.noted(record.get("private"), name)
    pid = record.get("pid")
    if isinstance(pid, int):
        folders.remove_glue(pid, own)
    return private is None or folders.remove_tree(private)
