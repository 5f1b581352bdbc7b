"""All conversations of a store: created once, found, listed, purged; and their records."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from runner.errors import InvalidRequest, NotFound, StoreFailed
from runner.workspace.workspaces import Workspaces
from tests.unit.workspace.workspace_lab import cut, lab, put, run


def test_create_find_list_purge(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            assert await at.spaces.find("t", "a") is None
            assert await at.spaces.purge("t", "a") is False
            space, created = await at.spaces.create("t", "a")
            assert created
            assert (space.version, space.incarnation, space.tenant, space.id) == (
                0,
                "000001",
                "t",
                "a",
            )
            assert await at.spaces.create("t", "a") == (space, False)
            assert await at.spaces.find("t", "a") is space
            assert await at.spaces.find("other", "a") is None
            await put(space, "x", b"1")
            assert await at.spaces.purge("t", "a") is True
            assert await at.spaces.find("t", "a") is None
            assert await at.spaces.list("t") == []
            for late in (put(space, "y", b""), space.delete("x"), cut(space, "z", b""), space.restore(0)):
                with pytest.raises(NotFound):
                    await late
            fresh, created = await at.spaces.create("t", "a")
            assert created
            assert fresh.incarnation == "000002"
            assert dict(fresh.files) == {}
            for name in ("b", "c.d", "c", "e"):
                await at.spaces.create("t", name)
            await at.spaces.purge("t", "c")
            assert await at.spaces.list("t") == ["a", "b", "c.d", "e"]
            assert await at.spaces.list("t", after="a", limit=2) == ["b", "c.d"]
            assert await at.spaces.list("nobody") == []
            for bad in ("", "../x", "x" * 129):
                with pytest.raises(InvalidRequest):
                    await at.spaces.find("t", bad)
                with pytest.raises(InvalidRequest):
                    await at.spaces.create(bad, "a")
        async with lab(tmp_path) as at:
            assert (await at.space()).incarnation == "000002"

    run(scenario())


def test_a_create_that_was_cut_off_is_no_conversation(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            (at.files / "t" / "t" / "c" / "half" / "000001" / "v").mkdir(parents=True)
            assert await at.spaces.find("t", "half") is None
            assert await at.spaces.list("t") == []
            space, created = await at.spaces.create("t", "half")
            assert created
            assert space.incarnation == "000001"

    run(scenario())


def test_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            assert await at.spaces.read_record("t", "owner", "a") is None
            assert await at.spaces.put_record("t", "owner", "a", {"n": 1, "ü": ["x", None]}) == 1
            assert await at.spaces.put_record("t", "owner", "a", {"n": 2}) == 2
            numbers = await asyncio.gather(*(at.spaces.put_record("t", "owner", "a", {"n": 3}) for _ in range(8)))
            assert sorted(numbers) == list(range(3, 11))
            assert await at.spaces.read_record("t", "owner", "a") == {"n": 3}
            assert await at.spaces.read_record("other", "owner", "a") is None
            assert await at.spaces.read_record("t", "job", "a") is None
            (at.files / "t/t/r/owner/a/000000000011.json").write_bytes(b"{")
            with pytest.raises(StoreFailed):
                await at.spaces.read_record("t", "owner", "a")
            with pytest.raises(InvalidRequest):
                await at.spaces.put_record("t", "../x", "a", {})

    run(scenario())


def test_a_workspace_nobody_holds_is_decoded_anew(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            await put(await at.space(), "a", b"1")
            found = await at.spaces.find("t", "a")
            assert found is not None
            assert set(found.files) == {"a"}
            assert await Workspaces(at.store, at.config).find("t", "a") is not found

    run(scenario())
