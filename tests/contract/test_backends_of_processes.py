"""What only the backends without an engine do: files of proot, and sweeping by processes where there are no groups."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.cgroup import Parents
from runner.backends.unisolated.backend import UnisolatedSandbox
from tests.contract.backends_lab import make, spec


@pytest.mark.parametrize("swept", [False, True])
async def test_files_of_proot_do_not_stay_in_the_temporary_folder(tmp_path: Path, swept: bool) -> None:
    made = make("unisolated", tmp_path / "run")
    report = await made.probe()
    if not report.available:
        pytest.skip(f"unisolated: {report.detail}")
    sandbox = await made.create(spec())
    assert isinstance(sandbox, UnisolatedSandbox)
    assert sandbox._child is not None
    if swept:
        assert await make("unisolated", tmp_path / "run").sweep() == 1
    await sandbox.destroy()
    assert list(Path("/tmp").glob(f"prooted-{sandbox._child.pid}-*")) == []


async def test_without_groups_a_dead_runners_sandbox_is_swept_by_its_process(tmp_path: Path) -> None:
    first, other = make("bubblewrap", tmp_path / "run"), make("bubblewrap", tmp_path / "run")
    assert isinstance(first, BubblewrapBackend)
    assert isinstance(other, BubblewrapBackend)
    report = await first.probe()
    if not report.available:
        pytest.skip(f"bubblewrap: {report.detail}")
    first._parents = other._parents = Parents({}, None, False)
    sandbox = await first.create(spec())
    assert sandbox._child is not None
    assert await other.sweep() == 1
    assert await asyncio.wait_for(sandbox._child.ended(5), 6)
    assert await asyncio.wait_for(sandbox.reader.read(), 10) == b""
    await sandbox.destroy()
    assert await other.sweep() == 0
