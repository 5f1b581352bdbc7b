"""Several writers over one store, and callers who go away: nobody overwrites, nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runner.errors import Conflict, NotFound, PreconditionFailed
from runner.workspace.history import COMMIT_RETRIES, Workspace
from runner.workspace.workspaces import Workspaces
from tests.unit.workspace.workspace_lab import RUN, contents, cut, gone, lab, made, put, run


def test_two_writers_put_and_commit_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            await at.space()
            spaces = [await at.again(), await at.again()]
            expected: dict[str, bytes] = {}

            async def writer(number: int) -> None:
                space = spaces[number]
                for turn in range(12):
                    data = f"{number} {turn}".encode()
                    await put(space, f"up/{number}/{turn}", data)
                    expected[f"up/{number}/{turn}"] = data
                    if turn % 3 == 0:
                        path = f"out/{number}/{turn}"
                        result = await cut(space, path, data)
                        expected[result.renamed.get(path, path)] = data

            await asyncio.gather(writer(0), writer(1))
            assert await contents(await at.again()) == expected
            for space in spaces:
                await space.refresh()
                assert await contents(space) == expected
            infos = await spaces[0].versions()
            assert [info.version for info in infos] == list(range(8, -1, -1))

    run(scenario())


def test_two_runs_of_one_path_are_both_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            await cut(await at.space(), "a", b"0")
            one, two = await at.again(), await at.again()
            first, second = await made(one, "a", b"one"), await made(two, "a", b"two")
            results = await asyncio.gather(
                one.commit([first], synced_seq=0, cause=RUN), two.commit([second], synced_seq=0, cause=RUN)
            )
            assert sorted(result.version for result in results) == [2, 3]
            kept = await contents(await at.again())
            assert set(kept) == {"a", "a (run 3)"}
            assert sorted(kept.values()) == [b"one", b"two"]
            assert sum(map(len, (result.renamed for result in results))) == 1

    run(scenario())


def test_only_one_creates(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            many = [Workspaces(at.store, at.config) for _ in range(4)]
            made = await asyncio.gather(*(spaces.create("t", "a") for spaces in many * 2))
            assert sum(created for _, created in made) == 1
            assert {space.incarnation for space, _ in made} == {"000001"}
            assert len({id(space) for space, _ in made}) == 4

    run(scenario())


def test_only_one_put_if_absent_wins(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            await at.space()
            spaces = [await at.again() for _ in range(5)]
            results = await asyncio.gather(
                *(put(space, "a", b"%d" % number, if_absent=True) for number, space in enumerate(spaces)),
                return_exceptions=True,
            )
            lost = [result for result in results if isinstance(result, BaseException)]
            assert len(lost) == 4
            assert all(isinstance(one, PreconditionFailed) for one in lost)

    run(scenario())


def ahead_of(
    space: Workspace, name: str, other: Callable[[], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> list[int]:
    """Let another writer win just before each append of ``space``; the list grows with each try."""
    tries: list[int] = []
    original = getattr(space._ledger, name)

    async def overtaken(*arguments: Any) -> None:
        tries.append(1)
        await other()
        await original(*arguments)

    monkeypatch.setattr(space._ledger, name, overtaken)
    return tries


def test_a_commit_that_always_loses_is_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space, other = await at.space(), await at.again()
            counter = iter(range(100))
            tries = ahead_of(space, "append_version", lambda: cut(other, "theirs", b"%d" % next(counter)), monkeypatch)
            with pytest.raises(Conflict):
                await cut(space, "mine", b"")
            assert len(tries) == 1 + COMMIT_RETRIES
            monkeypatch.undo()
            assert (await cut(space, "mine", b"")).version == 2 + COMMIT_RETRIES
            assert set(space.files) == {"theirs", "mine"} == set((await at.again()).files)

    run(scenario())


def test_an_upload_that_was_overtaken_is_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space, other = await at.space(), await at.again()

            async def once() -> None:
                if "a/b" not in other.files:
                    await put(other, "a/b", b"theirs")
                    await cut(other, "c", b"folds it")

            ahead_of(space, "append_draft", once, monkeypatch)
            with pytest.raises(Conflict, match="is a folder"):
                await put(space, "a", b"mine")
            await put(space, "d", b"mine")
            assert set(space.files) == set((await at.again()).files) == {"a/b", "c", "d"}
            assert space.draft_seq == 2

    run(scenario())


def test_a_restore_that_was_overtaken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await cut(space, "a", b"1")
            await space.commit([gone("a")], synced_seq=0, cause=RUN)
            other = await at.again()

            async def once() -> None:
                if other.version == 2:
                    await cut(other, "theirs", b"")

            ahead_of(space, "append_version", once, monkeypatch)
            assert (await space.restore(1)).version == 4
            assert await contents(space) == {"a": b"1"}

    run(scenario())


def test_purged_by_another(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await Workspaces(at.store, at.config).purge("t", "a")
            with pytest.raises(NotFound):
                await space.refresh()
            fresh, created = await at.spaces.create("t", "a")
            assert created
            assert fresh is not space

    run(scenario())


@pytest.mark.parametrize("turns", range(0, 24, 2))
def test_a_caller_who_goes_away_leaves_memory_and_store_agreeing(tmp_path: Path, turns: int) -> None:
    """Cancelled after any number of turns of the loop, an upload has happened wholly or not at all."""

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "before", b"0")
            big = bytes(300_000)
            tasks = [asyncio.create_task(put(space, "a", big)), asyncio.create_task(cut(space, "b", big[1:]))]
            for _ in range(turns):
                await asyncio.sleep(0)
                await at.store.exists("t/x")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await put(space, "after", b"1")
            again = await at.again()
            assert again.files == space.files
            assert again.draft_seq == space.draft_seq
            assert {"before", "after"} <= set(space.files) <= {"before", "a", "b", "after"}
            await contents(space)
        assert list((tmp_path / "store" / "staging").iterdir()) == []

    run(scenario())
