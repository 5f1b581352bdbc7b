"""Executions, claimed keys and settings of a conversation: one outcome each, whoever writes and whoever dies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from runner.errors import Conflict, InvalidRequest, NotFound, StoreFailed, TooLarge
from runner.workspace import encoding, keys
from runner.workspace.history import ExecutionRecord, Workspace
from tests.unit.workspace.workspace_lab import cut, lab, memory_lab, run

HOME = keys.incarnation("t", "a", "000001")


def test_begun_once_and_ended_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            assert await space.read_execution("x1") is None
            await space.begin_execution("x1", {"language": "python"})
            assert await space.read_execution("x1") == ExecutionRecord({"language": "python"}, None)
            with pytest.raises(Conflict):
                await space.begin_execution("x1", {"language": "bash"})
            assert await space.end_execution("x1", {"outcome": "ok", "blobs": []}) is True
            assert await space.end_execution("x1", {"outcome": "lost"}) is False
            for bad in ("", "../x", "a/b", "x" * 129):
                for call in (space.begin_execution, space.end_execution):
                    with pytest.raises(InvalidRequest):
                        await call(bad, {})
                with pytest.raises(InvalidRequest):
                    await space.read_execution(bad)
        async with lab(tmp_path) as at:
            record = await (await at.space()).read_execution("x1")
            assert record == ExecutionRecord({"language": "python"}, {"outcome": "ok", "blobs": []})
            folder = at.files / keys.executions(HOME)
            assert sorted(path.name for path in folder.iterdir()) == ["x1.begin.json", "x1.end.json"]

    run(scenario())


def test_of_many_who_end_it_one_does() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        await at.space()
        spaces = [await at.again() for _ in range(8)]
        begun = await asyncio.gather(
            *(space.begin_execution("x", {"by": n}) for n, space in enumerate(spaces)), return_exceptions=True
        )
        assert sum(one is None for one in begun) == 1
        assert sum(isinstance(one, Conflict) for one in begun) == 7
        ended = await asyncio.gather(*(space.end_execution("x", {"by": n}) for n, space in enumerate(spaces)))
        assert sum(ended) == 1
        record = await spaces[0].read_execution("x")
        assert record is not None
        assert (record.begin["by"], (record.end or {})["by"]) == (begun.index(None), ended.index(True))

    run(scenario())


def test_a_key_is_claimed_once() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        await at.space()
        spaces = [await at.again() for _ in range(8)]
        for key in ("k", "", "../../x", "ü\ud800" * 5000):
            assert await spaces[0].read_claim(key) is None
            said = await asyncio.gather(*(space.claim(key, {"execution_id": n}) for n, space in enumerate(spaces)))
            assert said.count(None) == 1
            winner = {"execution_id": said.index(None)}
            assert [one for one in said if one is not None] == [winner] * 7
            assert await spaces[3].read_claim(key) == winner
        assert await spaces[0].read_claim("another") is None

    run(scenario())


def test_what_json_can_hold_comes_back() -> None:
    payload: dict[str, Any] = {
        "text": "ü\ud800\0\n😀" * 3,
        "none": None,
        "deep": [[[{"a": [1, 2.5, True]}]]],
        "infinite": math.inf,
    }

    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        for name, extra in (("small", ""), ("big", "0123456789" * 300_000)):
            await space.begin_execution(name, payload)
            assert await space.end_execution(name, {**payload, "stdout": extra}) is True
            record = await (await at.again()).read_execution(name)
            assert record == ExecutionRecord(payload, {**payload, "stdout": extra})
        assert len(store.objects_now[keys.execution_end(HOME, "big")]) < 100_000  # compressed

    run(scenario())


def test_records_have_a_bound_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        await space.begin_execution("fits", {"text": "x" * (encoding.MAX_RECORD_BYTES - 20)})
        with pytest.raises(TooLarge):
            await space.begin_execution("x", {"text": "x" * encoding.MAX_RECORD_BYTES})
        with pytest.raises(TooLarge):
            await space.set_settings({"text": "x" * encoding.MAX_RECORD_BYTES})
        assert await space.read_execution("x") is None
        assert await space.settings() == {}
        monkeypatch.setattr(encoding, "MAX_RECORD_BYTES", 1 << 20)
        with pytest.raises(StoreFailed, match="damaged"):
            await space.read_execution("fits")
        store.objects_now[keys.claim(HOME, "k")] = b'{"a":"' + b"x" * (1 << 20) + b'"}'
        with pytest.raises(StoreFailed, match="damaged"):
            await space.claim("k", {})

    run(scenario())


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"x\x9c", b"\xff" * 9, b"{}x", b"[" * 100_000])
def test_a_damaged_record_is_named_and_never_taken_for_none(damage: bytes) -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        await space.begin_execution("x", {})
        await space.end_execution("x", {})
        await space.claim("k", {})
        await space.set_settings({"labels": {}})
        reads: list[tuple[str, Callable[[Workspace], Awaitable[object]]]] = [
            (keys.execution_end(HOME, "x"), lambda space: space.read_execution("x")),
            (keys.execution_begin(HOME, "x"), lambda space: space.read_execution("x")),
            (keys.claim(HOME, "k"), lambda space: space.claim("k", {})),
            (keys.claim(HOME, "k"), lambda space: space.read_claim("k")),
            (keys.numbered(keys.settings(HOME), 1), lambda space: space.settings()),
        ]
        for key, read in reads:
            kept, store.objects_now[key] = store.objects_now[key], damage
            with pytest.raises(StoreFailed) as caught:
                await read(await at.again())
            assert key.partition("/c/")[2] in caught.value.detail
            store.objects_now[key] = kept
            await read(await at.again())
        assert await space.settings() == {"labels": {}}  # in memory

    run(scenario())


def test_a_purge_ends_all_of_it() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        await space.begin_execution("x", {})
        await space.claim("k", {"execution_id": "x"})
        await space.set_settings({"labels": {"a": "b"}})
        await at.spaces.purge("t", "a")
        for late in (
            space.begin_execution("y", {}),
            space.end_execution("x", {}),
            space.read_execution("x"),
            space.claim("k", {}),
            space.read_claim("k"),
            space.settings(),
            space.set_settings({}),
        ):
            with pytest.raises(NotFound):
                await late
        fresh = await at.space()
        assert await fresh.read_execution("x") is None
        assert await fresh.read_claim("k") is None
        assert await fresh.settings() == {}

    run(scenario())


def test_settings() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        assert await space.settings() == {}
        wanted: dict[str, Any] = {"labels": {"a": "1"}, "limits": {"pids": 5}}
        await space.set_settings(wanted)
        wanted["labels"]["a"] = 9  # a caller's object is no way in
        first = await space.settings()
        first["labels"]["b"] = "2"
        assert await space.settings() == {"labels": {"a": "1"}, "limits": {"pids": 5}}
        trips = store.trips
        await space.settings()
        assert store.trips == trips
        other = await at.again()
        await asyncio.gather(other.set_settings({"n": 1}), other.set_settings({"n": 2}))
        assert await space.settings() == {"labels": {"a": "1"}, "limits": {"pids": 5}}
        await space.refresh()
        assert await space.settings() == await other.settings() == await (await at.again()).settings()
        assert [key for key in store.objects_now if "/m/" in key] == [keys.numbered(keys.settings(HOME), 3)]

    run(scenario())


def test_executions_cost_no_folders_and_versions_do_not_know_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            for number in range(5):
                await space.begin_execution(f"x{number}", {})
                await space.end_execution(f"x{number}", {})
                await space.claim(f"k{number}", {})
            await cut(space, "f", b"1")
            home = at.files / HOME
            assert sorted(path.name for path in home.iterdir()) == ["k", "v", "x"]
            assert not any(path.is_dir() for name in ("k", "x") for path in (home / name).iterdir())
            assert (await at.again()).files == space.files

    run(scenario())
