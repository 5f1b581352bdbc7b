"""A draft that becomes long is folded into a version by itself, and nobody notices but by the version."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import StoreFailed
from runner.workspace import commits
from runner.workspace.history import Workspace
from runner.workspace.ledger import Ledger
from runner.workspace.manifest import Cause
from tests.unit.workspace.workspace_lab import RUN, get, lab, made, put, run


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "LONG_DRAFT", 8)


def unfolded(space: Workspace) -> int:
    return len(space._state.unfolded)


def test_it_is_folded_and_reads_back_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            for number in range(7):
                await put(space, f"uploads/{number}", b"%d" % number)
            assert (space.version, unfolded(space)) == (0, 7)
            await space.delete("uploads/0")
            assert (space.version, unfolded(space)) == (1, 0)
            info = (await space.versions())[0]
            assert (info.cause, info.changes.created) == (Cause("edits"), 6)
            await put(space, "uploads/8", b"8")
            again = await at.again()
            assert dict(again.files) == dict(space.files)
            assert (again.version, unfolded(again)) == (1, 1)
            assert await get(again, "uploads/3") == b"3"

    run(scenario())


def test_many_changes_fold_it_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "LARGE_DRAFT", 600)

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            changes = [await made(space, f"a/{number}", b"%d" % number) for number in range(300)]
            await space.commit(changes, synced_seq=0, cause=RUN)
            await space.move("a", "b")
            assert (space.version, unfolded(space)) == (2, 0)
            assert len(space.files) == 300

    run(scenario())


def test_a_run_that_began_before_meets_uploads_as_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "outputs/a", b"before")
            base, seen = space.version, space.draft_seq
            for number in range(8):
                await put(space, "outputs/a", b"upload %d" % number)
            assert space.version == 1
            mine = await made(space, "outputs/a", b"of the run")
            result = await space.commit([mine], synced_seq=seen, base_version=base, cause=RUN)
            assert result.renamed == {"outputs/a": "outputs/a (run 2)"}
            assert await get(space, "outputs/a") == b"upload 7"
            assert await get(space, "outputs/a (run 2)") == b"of the run"

    run(scenario())


def test_a_store_that_fails_then_costs_no_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()

            async def fail(*_: object) -> None:
                raise StoreFailed("broken")

            with monkeypatch.context() as patch:
                patch.setattr(Ledger, "append_version", fail)
                for number in range(10):
                    await put(space, f"uploads/{number}", b"x")
            assert (space.version, unfolded(space)) == (0, 10)
            await put(space, "uploads/10", b"x")
            assert (space.version, unfolded(space)) == (1, 0)

    run(scenario())
