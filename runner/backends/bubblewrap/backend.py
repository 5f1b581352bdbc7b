"""Starts sandboxes with bubblewrap and ends them; what a dead runner left is found by records and swept."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from runner.agent import loader
from runner.backends import leases, records, seccomp
from runner.backends.base import WORKSPACE, BackendReport, Permission, agent_command, agent_environment, as_it_is
from runner.backends.bubblewrap import args, cgroup, leftover, mounts, probe
from runner.backends.bubblewrap.cgroup import Group, Parents
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.bubblewrap.launch import Plan
from runner.backends.child import ChildSandbox, WithoutSurvivors, started_or_undone
from runner.backends.proc import HOST_FACTS
from runner.errors import BackendUnavailable
from runner.model import SandboxSpec, SandboxUsage

_START_S = 20.0
_REAP_S = 1.0
_END_S = 5.0
_ADVICE = "a sandbox could not be started: run `foliobox doctor` to see which part is missing"


class BubblewrapSandbox(ChildSandbox):
    """A jail with the agent as its PID 1, and everything of it on the host: process, groups, record, uid."""

    def __init__(self, sandbox_id: str, group: Group, record: Path, lease: leases.UidLease | None) -> None:
        super().__init__(sandbox_id)
        self._group, self._record, self._lease = group, record, lease

    async def usage(self) -> SandboxUsage:
        return self._group.usage()

    async def reset_peak(self) -> None:
        self._group.reset_peak()

    async def start(self, plan: Plan, noted: records.Json) -> None:
        """Start the launch, note it, and hand the agent its sources. Raises OSError; then ``destroy`` is still due.

        The sources are larger than a pipe, so they are taken only by an agent that runs behind all walls.
        """
        self._child = await plan.spawn()
        records.write(self._record.parent, self._id, noted | leftover.facts(self._child.pid))
        await self._child.hand_over(plan.bundle, _START_S)
        if self._lease is not None:
            mounts.bound(self._child.pid)  # microseconds; it is root's to do

    async def _destroy(self) -> None:
        child = self._child
        if child is not None and child.running and leftover.kill_children(child.pid):
            # PID 1 takes its whole namespace along, and bwrap reaps it: no zombie is left to the host's init.
            await child.ended(_REAP_S)
        await asyncio.to_thread(self._group.kill)
        if child is not None:
            child.kill()
            await child.ended(_END_S)
            await child.close()
        if await asyncio.to_thread(self._group.remove):
            with contextlib.suppress(OSError):
                self._record.unlink(missing_ok=True)
            if self._lease is not None:
                self._lease.release()


class BubblewrapBackend(WithoutSurvivors):
    """The embedded backend. Use it from one long-lived thread: sandboxes die with the thread that spawned them."""

    name = "bubblewrap"

    def __init__(self, config: BubblewrapConfig) -> None:
        self._config = config
        self._parents: Parents | None = None
        self._hidden = tuple(path for path in HOST_FACTS if os.path.exists(path))

    @property
    def parents(self) -> Parents:
        """Where this runner may make control groups; looked up once."""
        if self._parents is None:
            self._parents = cgroup.find_parents()
        return self._parents

    async def probe(self, allowed: Permission = as_it_is) -> BackendReport:
        report, parents = await asyncio.to_thread(probe.probe, self._config, self._hidden, self.parents)
        report = allowed(report)
        if report.available:
            self._parents = parents
        return report

    async def create(self, spec: SandboxSpec) -> BubblewrapSandbox:
        return await started_or_undone(self._create(spec))

    async def _create(self, spec: SandboxSpec) -> BubblewrapSandbox:
        if self._config.bwrap is None:
            raise BackendUnavailable("bubblewrap is not installed: install the package bubblewrap")
        lease = leases.take_uid() if self._config.privileged else None
        group = Group.planned(self.parents, spec.sandbox_id)
        record = self._config.state / f"{spec.sandbox_id}.json"
        sandbox = BubblewrapSandbox(spec.sandbox_id, group, record, lease)
        try:
            uid = lease.uid if lease is not None else None
            noted = {"groups": group.folders, "uid": uid}
            records.write(self._config.state, spec.sandbox_id, noted)
            await asyncio.to_thread(group.make, spec.limits)
            await sandbox.start(self.plan(self._config.bwrap, spec, uid, group.procs), noted)
        except Exception as error:
            await sandbox.destroy()
            cause = "; ".join(filter(None, (f"{type(error).__name__}: {error}", sandbox.last_words)))
            raise BackendUnavailable(_ADVICE, cause=cause) from error
        return sandbox

    def plan(self, bwrap: str, spec: SandboxSpec, uid: int | None, procs: list[str]) -> Plan:
        """How a sandbox is started. Raises OSError or ImportError when a part is missing."""
        rootfs = str(self._config.rootfs.resolve(strict=True))
        agent: dict[str, object] = {"root": WORKSPACE, "python": self._config.python}
        return Plan(
            chain=args.chain(bwrap, spec.limits, uid, procs),
            options=args.options(rootfs, spec.limits, agent_environment(spec.limits), self._hidden),
            payload=agent_command(self._config.agent_python, agent),
            seccomp=seccomp.program(),
            bundle=loader.bundle(),
        )

    async def sweep(self) -> int:
        return await asyncio.to_thread(records.sweep, self._config.state, self._end_leftover)

    def _end_leftover(self, name: str, record: records.Json) -> bool:
        """End a dead runner's sandbox by what it noted, and by its name where groups are made now."""
        gone = leftover.end(record)
        noted = record.get("groups")
        folders = [folder for folder in noted if isinstance(folder, str)] if isinstance(noted, list) else []
        return Group.reopen([*folders, *Group.planned(self.parents, name).folders]).remove() and gone
