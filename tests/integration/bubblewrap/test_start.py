"""Starts that fail leave nothing and say why; starts that work leak nothing."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runner.backends import seccomp
from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.cgroup import Parents
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.bubblewrap.launch import Plan
from runner.errors import BackendUnavailable
from runner.model import SandboxLimits, SandboxSpec

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: uids and control groups of sandboxes")


class Altered(BubblewrapBackend):
    """A backend whose launches are changed by the test."""

    alter: Callable[[Plan], Plan] = staticmethod(lambda plan: plan)

    def plan(self, bwrap: str, spec: SandboxSpec, uid: int | None, procs: list[str], door: int | None = None) -> Plan:
        return type(self).alter(super().plan(bwrap, spec, uid, procs, door))


def backend(tmp_path: Path, alter: Callable[[Plan], Plan] | None = None, bwrap: str | None = None) -> BubblewrapBackend:
    """A backend with its records below ``tmp_path``."""
    config = replace(BubblewrapConfig.from_env(os.environ), state=tmp_path / "run")
    if bwrap is not None:
        config = replace(config, bwrap=bwrap)
    kind = type("Altered", (Altered,), {"alter": staticmethod(alter)} if alter else {})
    made: BubblewrapBackend = kind(config)
    return made


def need_groups(made: BubblewrapBackend) -> None:
    """Skip where this process may not make control groups."""
    if not made.parents.complete:
        pytest.skip("needs control groups")


def spec() -> SandboxSpec:
    return SandboxSpec("start-" + secrets.token_hex(4), SandboxLimits())


def left(tmp_path: Path) -> list[str]:
    """Records and groups of this file's sandboxes."""
    found = [str(path) for path in (tmp_path / "run").glob("*")]
    return found + [str(path) for path in Path("/sys/fs/cgroup").glob("*/**/foliobox-start-*")]


def swap(plan: Plan, old: str, new: str) -> Plan:
    return replace(plan, chain=[part.replace(old, new) for part in plan.chain])


FAILURES: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "uid drop": (lambda plan: swap(plan, "--clear-groups", "--no-such-flag"), "no-such-flag"),
    "rlimits": (lambda plan: swap(plan, "--nofile=", "--nofile=x"), "NOFILE"),
    "joining a group": (lambda plan: swap(plan, "cgroup.procs", "cgroup.nowhere"), "cgroup.nowhere"),
    "seccomp": (lambda plan: replace(plan, seccomp=b"\xff" * 16), "system call filtering"),
    "an option": (lambda plan: replace(plan, options=[*plan.options, "--no-such-option"]), "no-such-option"),
    "a folder": (lambda plan: replace(plan, options=[*plan.options, "--bind", "/nowhere", "/mnt"]), "/nowhere"),
    "the payload": (lambda plan: replace(plan, payload=["/nowhere/python3"]), "/nowhere/python3"),
}


@needs_root
@pytest.mark.parametrize("name", FAILURES)
async def test_a_step_that_fails_ends_the_start_with_its_last_words(tmp_path: Path, name: str) -> None:
    alter, words = FAILURES[name]
    if name == "joining a group":
        need_groups(backend(tmp_path))
    with pytest.raises(BackendUnavailable) as raised:
        await backend(tmp_path, alter).create(spec())
    assert words in str(raised.value.cause), raised.value.cause
    assert "foliobox doctor" in raised.value.detail
    assert left(tmp_path) == []


async def test_a_program_that_ends_at_once_is_told(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    program.chmod(0o755)
    tmp_path.chmod(0o755)
    with pytest.raises(BackendUnavailable) as raised:
        await backend(tmp_path, bwrap=str(program)).create(spec())
    assert raised.value.cause is not None
    assert left(tmp_path) == []


async def test_a_program_that_is_missing_is_told(tmp_path: Path) -> None:
    made = BubblewrapBackend(replace(BubblewrapConfig.from_env(os.environ), bwrap=None, state=tmp_path / "run"))
    with pytest.raises(BackendUnavailable, match="install the package"):
        await made.create(spec())
    assert not (await made.probe()).available


async def test_without_a_filter_there_is_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bytes:
        raise ImportError("libseccomp")

    monkeypatch.setattr(seccomp, "program", broken)
    made = backend(tmp_path)
    with pytest.raises(BackendUnavailable):
        await made.create(spec())
    assert left(tmp_path) == []
    report = await made.probe()
    assert not report.available
    assert "libseccomp2" in report.detail


@needs_root
async def test_groups_that_cannot_be_made_end_the_start(tmp_path: Path) -> None:
    made = backend(tmp_path)
    made._parents = Parents({name: Path("/sys/fs/cgroup/nowhere") for name in ("memory", "pids", "cpu")}, None, False)
    with pytest.raises(BackendUnavailable, match="could not be started"):
        await made.create(spec())
    assert left(tmp_path) == []
    report = await made.probe()
    walls = {wall.name: wall for wall in report.walls}
    assert report.available
    assert not walls["cgroups"].stands
    assert "nowhere" in walls["cgroups"].detail
    assert report.loopback_only


@needs_root
async def test_fifty_sandboxes_leak_no_descriptor_and_no_process(tmp_path: Path) -> None:
    made = backend(tmp_path)
    await (await made.create(spec())).destroy()
    await settle()
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(10):
        sandboxes = await asyncio.gather(*(made.create(spec()) for _ in range(5)))
        await asyncio.gather(*(sandbox.destroy() for sandbox in sandboxes))
    await settle()
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert left(tmp_path) == []
    with open("/proc/thread-self/children") as file:
        children = file.read().split()
    assert not [pid for pid in children if "bwrap" in Path(f"/proc/{pid}/comm").read_text()]


async def settle() -> None:
    """Let transports of ended processes close."""
    for _ in range(20):
        await asyncio.sleep(0)


@needs_root
async def test_end_is_bounded_and_takes_the_whole_sandbox(tmp_path: Path) -> None:
    made = backend(tmp_path)
    need_groups(made)
    sandbox = await made.create(spec())
    group = next(Path("/sys/fs/cgroup").glob(f"*/**/foliobox-{sandbox.sandbox_id}/cgroup.procs"))
    pids = [int(pid) for pid in group.read_text().split()]
    assert pids
    await asyncio.wait_for(sandbox.destroy(), 5)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert left(tmp_path) == []
