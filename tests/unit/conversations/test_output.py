"""Head and tail of long output, and what displayed bundles become."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

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
