"""Starts sandboxes with bubblewrap and ends them; what a dead runner left is found by records and swept."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from dataclasses import replace
from pathlib import Path

from runner.agent import loader
from runner.backends import egress, leases, records, seccomp
from runner.backends.base import WORKSPACE, BackendReport, Permission, agent_command, agent_environment, as_it_is
from runner.backends.bubblewrap import args, cgroup, leftover, mounts, probe, relay
from runner.backends.bubblewrap.cgroup import Group, Parents
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.bubblewrap.launch import Plan
from runner.backends.bubblewrap.relay import Relay
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
        self._relay: Relay | None = None

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

    async def open_way(self, door: socket.socket, proxy: tuple[str, int]) -> None:
        """Let it reach the proxy: take the listener that the agent sends through ``door``. Raises OSError."""
        listener = await relay.listener_of(door, _START_S)
        self._relay = Relay(proxy, self._id)
        await self._relay.start(listener)

    async def _destroy(self) -> None:
        child = self._child
        if self._relay is not None:
            self._relay.close()
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
        self._report: BackendReport | None = None  # what was last told of as available
        self._looks = egress.Looks()
        self._hidden = tuple(path for path in HOST_FACTS if os.path.exists(path))

    @property
    def parents(self) -> Parents:
        """Where this runner may make control groups; looked up once."""
        if self._parents is None:
            self._parents = cgroup.find_parents()
        return self._parents

    async def probe(self, allowed: Permission = as_it_is) -> BackendReport:
        report, parents = await asyncio.to_thread(probe.probe, self._config, self._hidden, self.parents)
        network = self._looks.first(await self._egress(report.available, egress.PATIENCE_S))
        report = allowed(replace(report, network=network))
        if report.available:
            self._parents, self._report = parents, report
        return report

    async def renewed(self, allowed: Permission = as_it_is) -> BackendReport | None:
        """Where the proxy has come up, or is seen to have stopped."""
        if self._report is None or not self._config.egress.wanted:
            return None
        network = self._looks.next(self._report.network, await self._egress(available=True))
        report = allowed(replace(self._report, network=network))
        if report.network == self._report.network or not report.available:
            return None
        self._report = report
        return report

    async def _egress(self, available: bool, patience_s: float = 0.0) -> egress.Egress:
        """Whether the proxy can be reached from here, which is where every sandbox reaches it from."""
        wanted = self._config.egress
        if not available or not wanted.wanted:
            return wanted.unproven
        if not wanted.proxy:
            return egress.Egress(False, f"{egress.PROXY} is not set, and a jail has no other way out")
        why = await egress.answers(wanted.address, patience_s)
        if why:
            return egress.Egress(False, f"the proxy {wanted.proxy} of {egress.PROXY} does not answer: {why}")
        return egress.Egress(True, f"sandboxes with network reach {wanted.proxy} and nothing else")

    async def create(self, spec: SandboxSpec) -> BubblewrapSandbox:
        return await started_or_undone(self._create(spec))

    async def _create(self, spec: SandboxSpec) -> BubblewrapSandbox:
        if self._config.bwrap is None:
            raise BackendUnavailable("bubblewrap is not installed: install the package bubblewrap")
        if spec.network and not (self._config.egress.wanted and self._config.egress.proxy):
            raise BackendUnavailable(
                f"no sandbox has network here: {egress.NETWORK} and {egress.PROXY} are not both set"
            )
        lease = leases.take_uid() if self._config.privileged else None
        group = Group.planned(self.parents, spec.sandbox_id)
        record = self._config.state / f"{spec.sandbox_id}.json"
        sandbox = BubblewrapSandbox(spec.sandbox_id, group, record, lease)
        door, theirs = socket.socketpair() if spec.network else (None, None)
        try:
            uid = lease.uid if lease is not None else None
            noted = {"groups": group.folders, "uid": uid}
            records.write(self._config.state, spec.sandbox_id, noted)
            await asyncio.to_thread(group.make, spec.limits)
            plan = self.plan(self._config.bwrap, spec, uid, group.procs, theirs.fileno() if theirs else None)
            await sandbox.start(plan, noted)
            if door is not None and theirs is not None:
                theirs.close()  # else nobody would notice that the agent has ended
                await sandbox.open_way(door, self._config.egress.address)
        except Exception as error:
            await sandbox.destroy()
            cause = "; ".join(filter(None, (f"{type(error).__name__}: {error}", sandbox.last_words)))
            raise BackendUnavailable(_ADVICE, cause=cause) from error
        finally:
            for end in (door, theirs):
                if end is not None:
                    end.close()
        return sandbox

    def plan(self, bwrap: str, spec: SandboxSpec, uid: int | None, procs: list[str], door: int | None = None) -> Plan:
        """How a sandbox is started; ``door`` is what an agent with network sends its listener through.

        Raises OSError or ImportError when a part is missing.
        """
        rootfs = str(self._config.rootfs.resolve(strict=True))
        agent: dict[str, object] = {"root": WORKSPACE, "python": self._config.python}
        told = agent_environment(spec.limits)
        if spec.network:
            told = egress.added_environment(f"http://127.0.0.1:{relay.PORT}", told)
            agent |= {"packages": egress.PACKAGES, "door": door, "port": relay.PORT}
        return Plan(
            chain=args.chain(bwrap, spec.limits, uid, procs),
            options=args.options(rootfs, spec.limits, told, self._hidden),
            payload=agent_command(self._config.agent_python, agent),
            seccomp=seccomp.program(),
            bundle=loader.bundle(),
            inherit=() if door is None else (door,),
        )

    async def sweep(self) -> int:
        return await asyncio.to_thread(records.sweep, self._config.state, self._end_leftover)

    def _end_leftover(self, name: str, record: records.Json) -> bool:
        """End a dead runner's sandbox by what it noted, and by its name where groups are made now."""
        gone = leftover.end(record)
        noted = record.get("groups")
        folders = [folder for folder in noted if isinstance(folder, str)] if isinstance(noted, list) else []
        return Group.reopen([*folders, *Group.planned(self.parents, name).folders]).remove() and gone
