"""Head and tail of long output, and what displayed bundles become."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from runner.conversations import output
from runner.conversations.output import ResultRecorder, StreamRecorder
from runner.workspace.config import WorkspaceConfig
from runner.workspace.history import Workspace
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    config = WorkspaceConfig(tmp_path)
    store = await open_store(config)
    made, _ = await Workspaces(store, config).create("default", "c")
    yield made
    await store.close()


def counts(total: int, tail: str = "") -> dict[str, object]:
    return {"total": total, "forwarded": total, "tail": tail}


async def record(workspace: Workspace, pieces: list[str], limit: int, tail: str = "") -> tuple[str, bool, int | None]:
    async with AsyncExitStack() as stack:
        recorder = StreamRecorder(workspace, limit, stack)
        for piece in pieces:
            await recorder.add(piece)
        total = sum(len(p.encode()) for p in pieces) + len(tail)
        shown = await recorder.finish(counts(total, tail), "/ref")
    return shown.text, shown.truncated, shown.full.size if shown.full else None


async def test_short_output_is_shown_whole(workspace: Workspace) -> None:
    assert await record(workspace, ["ab", "cd"], 4) == ("abcd", False, None)
    assert await record(workspace, [], 4) == ("", False, None)


async def test_long_output_shows_both_ends_and_keeps_the_whole(workspace: Workspace) -> None:
    text, truncated, stored = await record(workspace, ["a" * 60, "b" * 60, "c" * 60], 100)
    assert truncated
    assert stored == 180
    assert text.startswith("a" * 50 + "\n… 80 bytes left out; the whole stream is at /ref …\n")
    assert text.endswith("c" * 50)


async def test_the_end_comes_from_the_agent_when_it_stopped_forwarding(workspace: Workspace) -> None:
    text, truncated, _ = await record(workspace, ["a" * 200], 100, tail="z" * 80)
    assert truncated
    assert text.endswith("…\n" + "z" * 50)


async def test_a_cut_character_does_not_show_as_garbage(workspace: Workspace) -> None:
    text, _, _ = await record(workspace, ["中" * 100], 100)
    assert "\ufffd" not in text


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7])
async def test_small_limits_hold(workspace: Workspace, limit: int) -> None:
    text, truncated, stored = await record(workspace, ["abcdefgh", "ijkl"], limit)
    shown = [part for part in text.split("\n") if not part.startswith("…")]
    assert sum(map(len, shown)) <= limit
    assert (truncated, stored) == (True, 12)


async def test_a_flood_takes_no_memory_and_what_is_stored_of_it_is_bounded(workspace: Workspace) -> None:
    piece = "x" * 65_535 + "\n"
    async with AsyncExitStack() as stack:
        recorder = StreamRecorder(workspace, 65_536, stack)
        await recorder.add(piece)
        tracemalloc.start()
        try:
            for _ in range(4000):  # 250 MiB
                await recorder.add(piece)
            for _ in range(20_000):
                await recorder.add("y")  # tiny pieces cost no more than their bytes
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        shown = await recorder.finish(counts(1 << 70), "/ref")
    assert peak < 2 << 20
    assert shown.full is not None
    assert shown.full.size == 16 << 20
    assert shown.text.endswith("xx\n" + "y" * 20_000)
    assert shown.total == (1 << 53) - 1


async def test_what_grows_when_it_is_decoded_is_cut_at_the_same_size(workspace: Workspace) -> None:
    async with AsyncExitStack() as stack:
        recorder = StreamRecorder(workspace, 100, stack)
        for _ in range(9):
            await recorder.add("\ufffd" * (1 << 20))  # three bytes each: 27 MiB
        shown = await recorder.finish(counts(9 << 20), "/ref")
    assert shown.full is not None
    assert shown.full.size == 16 << 20


async def test_pictures_become_references(workspace: Workspace) -> None:
    recorder = ResultRecorder(workspace, "/v1/x")
    body = {"kind": "result", "data": {"text/plain": "t"}, "binary": ["image/png"], "metadata": {}}
    shown = await recorder.add(body, (b"\x89PNG",))
    assert shown == {"type": "result", "data": {"text/plain": "t", "image/png": "/v1/x/results/0"}}
    stream = await workspace.open_blob(recorder.blobs[0].blob, recorder.blobs[0].size)
    assert b"".join([chunk async for chunk in stream]) == b"\x89PNG"
    await stream.aclose()


async def test_the_number_of_results_is_bounded(workspace: Workspace) -> None:
    recorder = ResultRecorder(workspace, "/v1/x")
    body = {"kind": "display", "data": {"text/plain": "t"}, "binary": [], "metadata": {}}
    for _ in range(250):
        await recorder.add(body, ())
    assert (len(recorder.results), recorder.dropped) == (200, 50)


async def test_an_update_replaces_what_it_updates(workspace: Workspace) -> None:
    recorder = ResultRecorder(workspace, "/v1/x")
    for kind, text in (("display", "one"), ("display", "other"), ("update", "two")):
        name = None if text == "other" else "id"
        await recorder.add({"kind": kind, "data": {"text/plain": text}, "binary": [], "display_id": name}, ())
    assert [shown["data"]["text/plain"] for shown in recorder.results] == ["two", "other"]


def bundle(data: dict[str, object], **fields: object) -> dict[str, object]:
    return {"kind": "display", "data": data, "binary": [], "metadata": {}, **fields}


def inline(recorder: ResultRecorder) -> int:
    return len(json.dumps(recorder.results))


async def test_all_that_is_inline_is_bounded_together(workspace: Workspace) -> None:
    recorder = ResultRecorder(workspace, "/v1/x")
    for _ in range(60):
        await recorder.add(bundle({"text/plain": "x" * 50_000, "application/json": {"a": ["y" * 10_000]}}), ())
    assert inline(recorder) < (1 << 20) + 60_000
    assert len(recorder.results) == 60
    last = recorder.results[-1]["data"]
    stored = recorder.blobs[int(last["application/json"].rpartition("/")[2])]
    stream = await workspace.open_blob(stored.blob, stored.size)
    assert json.loads(b"".join([chunk async for chunk in stream])) == {"a": ["y" * 10_000]}
    await stream.aclose()


async def test_updates_give_back_the_room_of_what_they_replace(workspace: Workspace) -> None:
    recorder = ResultRecorder(workspace, "/v1/x")
    for number in range(100):
        kind = "update" if number else "display"
        shown = await recorder.add(bundle({"text/plain": "x" * 100_000}, kind=kind, display_id="bar"), ())
        assert shown is not None
        assert shown["data"]["text/plain"].startswith("xx")
    assert (len(recorder.results), recorder.blobs) == (1, [])


async def test_metadata_names_and_representations_are_bounded(workspace: Workspace) -> None:
    recorder = ResultRecorder(workspace, "/v1/x")
    assert await recorder.add(bundle({"text/plain": "t"}, metadata={"a": "x" * 20_000}), ()) == {
        "type": "display",
        "data": {"text/plain": "t"},
    }
    kept = await recorder.add(bundle({"text/plain": "t"}, metadata={"width": 3}), ())
    assert kept is not None
    assert kept["metadata"] == {"width": 3}
    assert await recorder.add(bundle({f"a/{n}": "t" for n in range(1000)}), ()) is None
    assert recorder.dropped == 1
    await recorder.add(bundle({"text/plain": "t"}, display_id="n" * 100_000), ())
    assert not recorder._named


async def test_what_one_run_may_store_for_its_results_is_bounded(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "MAX_RESULT_BLOBS", 3)
    monkeypatch.setattr(output, "MAX_RESULT_BYTES", 1000)
    recorder = ResultRecorder(workspace, "/v1/x")
    for content in (b"1" * 100, b"2" * 100, b"3" * 100, b"4"):
        await recorder.add({**bundle({}), "binary": ["image/png"]}, (content,))
    assert (len(recorder.results), len(recorder.blobs), recorder.dropped) == (3, 3, 1)
    other = ResultRecorder(workspace, "/v1/x")
    await other.add({**bundle({}), "binary": ["image/png"]}, (b"1" * 1001,))
    assert (other.results, other.dropped) == ([], 1)
