"""What comes back out of a sandbox about its files and its run: only what may have been sent is believed."""

from __future__ import annotations

from typing import Any

import pytest

from runner.conversations.marks import Mark, RunMark
from runner.conversations.resumed import FoundRun
from runner.errors import ProtocolError
from runner.model import RunLimits, RunRequest
from runner.workspace.history import Workspace

ID = "a" * 32
REQUEST = RunRequest("print(1)", "python", 1000, True, limits=RunLimits(1, None, 3))
MARK = Mark(0, 0, True, None, RunMark.of(ID, REQUEST, 2))
TOLD = {"run": ID, "seq": 9, "acknowledged": 5, "note": [4, 1, 2], "done": False, "interpreter": "kept"}


def run(**change: Any) -> dict[str, Any]:
    """The run of the mark, changed."""
    return {"run": {**MARK.json()["run"], **change}}


def test_what_was_sent_comes_back() -> None:
    for mark in (MARK, Mark(3, 4), Mark(-1, 0, False, "reset")):
        assert Mark.read(mark.json()) == mark
    assert MARK.run is not None
    asked = MARK.run.request
    assert (asked.language, asked.timeout_ms, asked.fresh, asked.limits) == ("python", 1000, True, REQUEST.limits)


@pytest.mark.parametrize(
    "change",
    [
        {"version": -2}, {"version": True}, {"version": "1"}, {"version": 1 << 60}, {"draft_seq": -1},
        {"draft_seq": None}, {"run": 5}, {"run": {}}, run(language="perl"), run(limits=[1, 2]),
        run(limits=[-1, None, None]), run(timeout_ms=1e9), run(oom_kills=-1),
    ],
)  # fmt: skip
def test_what_was_never_sent_is_no_mark(change: dict[str, Any]) -> None:
    assert Mark.read({**MARK.json(), **change}) is None


@pytest.mark.parametrize("body", [None, [], "x", {}, {"version": 1}])
def test_nothing_of_the_kind_is_no_mark(body: object) -> None:
    assert Mark.read(body) is None


def test_reasons_are_ours() -> None:
    told = Mark.read({**MARK.json(), "reason": "<script>"})
    assert told is not None
    assert told.reason is None


async def test_a_run_is_found_as_it_was_told_of(workspace: Workspace) -> None:
    assert await FoundRun.read(workspace, {"run": None}, None) is None
    found = await FoundRun.read(workspace, {"run": TOLD}, MARK)
    assert found is not None
    assert (found.after, found.events, found.results, found.blobs, found.started) == (5, 4, 1, 2, "kept")
    assert (found.begun, found.end, found.committed) == (False, None, None)
    for note in ([1 << 40, 1 << 40, 1 << 40], [9, -1, None]):
        found = await FoundRun.read(workspace, {"run": {**TOLD, "note": note}}, MARK)
        assert found is not None
        assert (found.events, 0 <= found.results <= 200, 0 <= found.blobs <= 2000) == (5, True, True)


@pytest.mark.parametrize(
    "told",
    [
        5,
        {},
        {**TOLD, "run": "b" * 32},
        {**TOLD, "acknowledged": -1},
        {**TOLD, "acknowledged": "5"},
        {**TOLD, "run": None},
    ],
)
async def test_another_run_than_the_one_that_was_sent_is_none(workspace: Workspace, told: object) -> None:
    with pytest.raises(ProtocolError):
        await FoundRun.read(workspace, {"run": told}, MARK)
    with pytest.raises(ProtocolError):
        await FoundRun.read(workspace, {"run": TOLD}, None)


async def test_a_run_whose_id_is_no_id_is_none(workspace: Workspace) -> None:
    mark = Mark(0, 0, run=RunMark.of("../../x", REQUEST, 0))
    with pytest.raises(ProtocolError):
        await FoundRun.read(workspace, {"run": {**TOLD, "run": "../../x"}}, mark)
