"""What is durable of a run: it reads back as it was, ends once, and a store that fails hides no run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runner.conversations.output import StoredBlob, StreamText
from runner.conversations.records import RESTARTED, RunRecord, from_json, outcome, stored, to_json
from runner.conversations.result import Artifact, RunResult, bounded_error, bounded_files, nothing_ran
from runner.errors import InvalidRequest, NotFound, OwnedElsewhere, StoreFailed, StoreFull
from runner.model import FileChange, FileEntry, InterpreterState, Outcome
from runner.workspace.base import Store
from runner.workspace.history import Workspace
from runner.workspace.manifest import Cause
from runner.workspace.owners import Owners

ID, OTHER = "a" * 32, "b" * 32
SHA = "0" * 64
BLOB = StoredBlob(f"{SHA}-00000001", 5, "image/png")


def full_result(**changed: Any) -> RunResult:
    entry = FileEntry("outputs/表.csv", 4, SHA, f"{SHA}-00000002", 0o600, 17)
    result = RunResult(
        execution_id=ID,
        outcome=Outcome.ERROR,
        exit_code=1,
        signal=None,
        duration_ms=12,
        peak_memory_bytes=1 << 30,
        stdout=StreamText("a\n… 9 bytes left out …\n", True, 10, StoredBlob(f"{SHA}-00000003", 10, "text/plain")),
        stderr=StreamText("", False, 0, None),
        results=[{"type": "result", "data": {"text/plain": "7", "application/json": {"a": [1, None]}}}],
        error={"name": "E", "message": "m", "traceback": "t", "line": 3},
        interpreter=InterpreterState.KEPT,
        interpreter_reason=None,
        version=4,
        files=[
            Artifact("outputs/表.csv", "created", entry, renamed_from="outputs/a.csv"),
            Artifact("x", "deleted", None),
        ],
        skipped=[{"path": "s", "reason": "socket"}],
        results_dropped=2,
    )
    return replace(result, **changed)


async def record_of(workspace: Workspace, result: RunResult) -> RunResult:
    record = RunRecord(workspace, ID, None)
    await record.begin()
    return await record.end(result, [BLOB], 9)


async def test_a_result_reads_back_as_it_was(workspace: Workspace, owners: Owners) -> None:
    result = full_result()
    assert from_json(to_json(result)) == result
    assert await record_of(workspace, result) == result
    found = await outcome(workspace, owners, ID)
    assert (found.result, found.seq, found.blobs) == (result, 9, [BLOB])
    raw = await workspace.read_execution(ID)
    assert raw is not None
    assert raw.end is not None
    assert raw.end["blobs"] == [BLOB.blob, f"{SHA}-00000003"]  # what the collector must keep


async def test_the_first_outcome_stands(workspace: Workspace, owners: Owners) -> None:
    first = full_result()
    await record_of(workspace, first)
    again = RunRecord(workspace, OTHER, None)
    await again.begin()
    await again.durable()
    lost = (await outcome(workspace, owners, OTHER)).result
    assert (lost.outcome, lost.interpreter_reason) == (Outcome.LOST, RESTARTED)
    late = await again.end(full_result(execution_id=OTHER), [], 3)
    assert (late.outcome, late.execution_id) == (Outcome.LOST, OTHER)
    assert (await outcome(workspace, owners, OTHER)).result == late


async def test_a_run_that_is_gone_is_lost_and_says_what_it_stored(workspace: Workspace, owners: Owners) -> None:
    await RunRecord(workspace, ID, None).begin()
    started = RunRecord(workspace, OTHER, None)
    await started.begin()
    await started.durable()
    async with workspace.stage() as staging:
        await staging.write(b"abc")
        sha256, size, blob = await workspace.adopt_blob(staging)
    change = FileChange("a", "created", FileEntry("a", size, sha256, blob))
    await workspace.commit([change], synced_seq=workspace.draft_seq, cause=Cause("run", execution_id=OTHER))
    for execution_id, version in ((OTHER, 1), (ID, 0)):
        for _ in range(2):
            result = (await outcome(workspace, owners, execution_id)).result
            assert (result.outcome, result.version) == (Outcome.LOST, version)


async def test_a_run_that_nobody_knows_of_and_that_ends_at_once_has_its_end_alone(
    workspace: Workspace, owners: Owners
) -> None:
    record = RunRecord(workspace, ID, None, announced=False)
    await record.begin()
    assert await record.end(full_result(), [BLOB], 9) == full_result()
    written = await workspace.read_execution(ID)
    assert written is not None
    assert written.begin == {}
    assert (await outcome(workspace, owners, ID)).result == full_result()


async def test_a_run_that_goes_on_is_noted_though_nobody_knows_of_it(workspace: Workspace) -> None:
    record = RunRecord(workspace, ID, None, announced=False)
    await record.begin()
    async with asyncio.timeout(5):
        while await workspace.read_execution(ID) is None:
            await asyncio.sleep(0.005)
    await record.end(full_result(), [], 9)
    written = await workspace.read_execution(ID)
    assert written is not None
    assert written.begin["version"] == 0


async def test_a_run_that_only_its_version_names_is_lost(workspace: Workspace, owners: Owners) -> None:
    async with workspace.stage() as staging:
        await staging.write(b"made")
        sha256, size, blob = await workspace.adopt_blob(staging)
    change = FileChange("a", "created", FileEntry("a", size, sha256, blob))
    await workspace.commit([change], synced_seq=0, cause=Cause("run", execution_id=ID))
    found = (await outcome(workspace, owners, ID)).result
    assert (found.outcome, found.version, found.interpreter_reason) == (Outcome.LOST, 1, RESTARTED)
    with pytest.raises(NotFound):
        await outcome(workspace, owners, OTHER)


async def test_a_run_of_another_living_runner_is_not_lost(workspace: Workspace, store: Store) -> None:
    there, here = Owners(store, "there"), Owners(store, "here")
    await there.start()
    await here.start()
    await there.acquire(workspace)
    record = RunRecord(workspace, ID, None)
    await record.begin()
    await record.durable()
    with pytest.raises(OwnedElsewhere):
        await outcome(workspace, here, ID)
    result = await record.end(full_result(), [], 3)
    assert (await outcome(workspace, here, ID)).result == result
    await there.close()
    await here.close()


async def test_what_never_began_or_was_refused_is_not_found(workspace: Workspace, owners: Owners) -> None:
    with pytest.raises(NotFound):
        await outcome(workspace, owners, ID)
    record = RunRecord(workspace, ID, None)
    await record.begin()
    await record.refuse(InvalidRequest("too much env"))
    with pytest.raises(NotFound, match="refused"):
        await outcome(workspace, owners, ID)


async def test_a_store_that_takes_no_more_does_not_hide_the_run(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> bool:
        raise StoreFull("The disk is full.")

    monkeypatch.setattr(workspace, "end_execution", full)
    told = await record_of(workspace, full_result())
    assert told.outcome is Outcome.ERROR
    assert told.record_error == {
        "code": "store_full",
        "detail": "The disk is full. The run took place; its result is not kept.",
    }


async def test_that_it_began_must_be_durable(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(*_: object) -> None:
        raise StoreFull("The disk is full.")

    monkeypatch.setattr(workspace, "begin_execution", full)
    record = RunRecord(workspace, ID, None)
    await record.begin()
    with pytest.raises(StoreFull):
        await record.durable()


async def test_a_result_beyond_what_a_record_holds_is_kept_cut(workspace: Workspace, owners: Owners) -> None:
    huge = StreamText("\0" * (4 << 20), False, 4 << 20, None)  # six characters each as JSON
    told = await record_of(workspace, full_result(stdout=huge))
    assert told.stdout is huge
    assert told.record_error is not None
    kept = (await outcome(workspace, owners, ID)).result
    assert (kept.outcome, kept.files, kept.record_error) == (told.outcome, told.files, told.record_error)
    assert len(kept.stdout.text) < 20_000
    assert kept.stdout.truncated
    assert kept.results_dropped == 3


@pytest.mark.parametrize("value", ["a\ud800b", float("nan"), {"\udc00": [float("inf")]}])
async def test_what_json_cannot_carry_is_kept_all_the_same(workspace: Workspace, owners: Owners, value: Any) -> None:
    shown = [{"type": "display", "data": {"application/json": value}}]
    await record_of(workspace, full_result(results=shown))
    kept = (await outcome(workspace, owners, ID)).result.results[0]["data"]["application/json"]
    assert repr(kept) == repr(value)


def test_a_damaged_record_is_told_as_such() -> None:
    for end in ({}, {"result": {}, "shown": [], "seq": 1}, {"result": to_json(full_result()), "shown": 3, "seq": 1}):
        with pytest.raises(StoreFailed, match="damaged"):
            stored(end)


def test_lists_of_files_and_errors_are_bounded() -> None:
    files = [Artifact("d/" * 500 + str(number), "deleted", None) for number in range(20_000)]
    listed, left_out = bounded_files(files)
    assert (listed, left_out) == (files[:2000], 18_000)
    assert bounded_files(files[:2000]) == (files[:2000], 0)
    error = bounded_error(
        {"name": "E" * 1000, "message": "m" * 1_000_000, "traceback": "t" * 1_000_000, "line": 1 << 70}
    )
    assert error is not None
    assert sum(len(str(part)) for part in error.values()) < 90_000
    assert error["line"] is None
    assert error["traceback"].endswith("t")
    assert bounded_error({"name": "E", "message": "m", "traceback": "t", "line": 2})["message"] == "m"  # type: ignore[index]
    assert bounded_error(None) is None


def test_nothing_ran_says_so() -> None:
    result = nothing_ran(ID, Outcome.INTERRUPTED, 3, InterpreterState.KEPT, "not_started")
    assert (result.version, result.stdout.text, result.files, result.duration_ms) == (3, "", [], 0)
