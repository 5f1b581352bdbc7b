"""Idempotency keys: one run for one key, whatever comes together, fails early, or is asked again later."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runner.conversations.events import LogMemory
from runner.conversations.records import Claim, RunRecord, claimed, fingerprint, outcome
from runner.conversations.result import RunResult, nothing_ran
from runner.conversations.runs import Running, Runs
from runner.errors import Busy, Conflict, InvalidRequest, KeyReused, NotFound, StoreFailed, StoreFull
from runner.model import InterpreterState, Outcome, RunLimits, RunRequest
from runner.workspace.history import Workspace
from runner.workspace.owners import Owners

REQUEST = RunRequest("print(1)", env={"a": "1", "b": "2"})
CLAIM = Claim.of("key-1", REQUEST)
ID, OTHER = "a" * 32, "b" * 32


def result_of(execution_id: str) -> RunResult:
    return nothing_ran(execution_id, Outcome.OK, 0, InterpreterState.KEPT, "")


@pytest.mark.parametrize("key", ["", "a b", "a\tb", "ä", "x" * 256, "a\n"])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(InvalidRequest, match="Idempotency-Key"):
        Claim.of(key, REQUEST)


def test_a_fingerprint_sees_every_field_and_no_order() -> None:
    assert fingerprint(REQUEST) == fingerprint(replace(REQUEST, env={"b": "2", "a": "1"}))
    others = [
        replace(REQUEST, code="print(2)"),
        replace(REQUEST, language="bash"),
        replace(REQUEST, timeout_ms=5),
        replace(REQUEST, fresh=True),
        replace(REQUEST, stdin=b""),
        replace(REQUEST, stdin=b"x"),
        replace(REQUEST, env={}),
        replace(REQUEST, limits=RunLimits(artifacts=1)),
        replace(REQUEST, code="\ud800"),
        replace(REQUEST, inputs="sha"),
        replace(REQUEST, inputs="other"),
    ]
    assert len({fingerprint(one) for one in (REQUEST, *others)}) == 1 + len(others)


async def test_a_key_is_claimed_before_the_run_and_by_one_only(workspace: Workspace, owners: Owners) -> None:
    first = RunRecord(workspace, ID, CLAIM)
    await first.begin()
    assert await claimed(workspace, CLAIM) == ID
    with pytest.raises(Conflict):
        await RunRecord(workspace, OTHER, CLAIM).begin()
    with pytest.raises(NotFound, match="refused"):  # it does not count as lost: nothing of it ran
        await outcome(workspace, owners, OTHER)
    with pytest.raises(KeyReused):
        await claimed(workspace, Claim.of("key-1", RunRequest("other")))
    assert await claimed(workspace, Claim.of("key-2", REQUEST)) is None


async def test_a_key_is_not_burnt_when_the_begin_cannot_be_written(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreFull("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(workspace, "begin_execution", full)
        with pytest.raises(StoreFull):
            await RunRecord(workspace, ID, CLAIM).begin()
    assert await claimed(workspace, CLAIM) is None
    await RunRecord(workspace, OTHER, CLAIM).begin()
    assert await claimed(workspace, CLAIM) == OTHER


async def test_a_claim_without_an_end_is_lost_and_stays_so(workspace: Workspace, owners: Owners) -> None:
    await RunRecord(workspace, ID, CLAIM).begin()
    for _ in range(2):
        found = await outcome(workspace, owners, str(await claimed(workspace, CLAIM)))
        assert (found.result.outcome, found.result.execution_id) == (Outcome.LOST, ID)


async def test_a_key_whose_run_was_refused_is_claimed_anew_and_by_one_only(
    workspace: Workspace, owners: Owners
) -> None:
    """The refusal came after the claim, which stands: by the agent, or by a store that had taken it all the same."""
    ids = [f"{number:032x}" for number in range(4)]
    for number, execution_id in enumerate(ids):
        assert await claimed(workspace, CLAIM) is None
        late = RunRecord(workspace, f"{number + 16:032x}", CLAIM)
        record = RunRecord(workspace, execution_id, CLAIM)
        await record.begin()
        assert await claimed(workspace, CLAIM) == execution_id
        with pytest.raises(KeyReused):
            await claimed(workspace, Claim.of("key-1", RunRequest("other")))
        with pytest.raises(Conflict):
            await late.begin()
        if execution_id != ids[-1]:
            await record.refuse(InvalidRequest("too much env"))
    assert (await record.end(result_of(ids[-1]), [], 1)).execution_id == ids[-1]
    assert await claimed(workspace, CLAIM) == ids[-1]
    with pytest.raises(Conflict):
        await RunRecord(workspace, OTHER, CLAIM).begin()
    with pytest.raises(NotFound, match="refused"):
        await outcome(workspace, owners, ids[0])


async def test_a_claim_that_landed_though_the_store_said_no(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = workspace.claim

    async def lands(*given: Any) -> None:
        await claim(*given)
        raise StoreFailed("no")

    with monkeypatch.context() as patch:
        patch.setattr(workspace, "claim", lands)
        with pytest.raises(StoreFailed):
            await RunRecord(workspace, ID, CLAIM).begin()
    assert await workspace.read_claim(CLAIM.key) is not None
    await RunRecord(workspace, OTHER, CLAIM).begin()
    assert await claimed(workspace, CLAIM) == OTHER


async def test_a_key_is_not_claimed_for_ever(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.conversations.records._GENERATIONS", 3)
    for number in range(3):
        record = RunRecord(workspace, f"{number:032x}", CLAIM)
        await record.begin()
        await record.refuse(InvalidRequest("no"))
    with pytest.raises(InvalidRequest, match="3 runs"):
        await RunRecord(workspace, ID, CLAIM).begin()


async def test_runs_are_found_by_id_and_key_until_they_are_forgotten(workspace: Workspace) -> None:
    runs, go = Runs(keep_s=0.05), asyncio.Event()

    async def work(running: Running) -> RunResult:
        await go.wait()
        running.log.add("done", {}, result=result_of(ID))
        return result_of(ID)

    begun = runs.start(workspace, ID, CLAIM, work)
    assert runs.active() == 1
    assert not await runs.wait(0.001)
    assert runs.find(workspace, ID) is runs.find_claim(workspace, CLAIM) is begun
    assert begun.again().replayed
    with pytest.raises(KeyReused):
        runs.find_claim(workspace, Claim.of("key-1", RunRequest("other")))
    go.set()
    assert await runs.wait(5)
    assert (await begun.again().result()).execution_id == ID
    assert runs.active() == 0
    assert runs.find(workspace, ID) is begun
    async with asyncio.timeout(5):
        while runs.find(workspace, ID) is not None:
            await asyncio.sleep(0)
    assert runs.find_claim(workspace, CLAIM) is None
    assert begun.log.size == 0


async def test_a_run_that_is_refused_leaves_its_key_free(workspace: Workspace) -> None:
    runs = Runs()

    async def refused(_: Running) -> RunResult:
        raise Busy("later")

    first = runs.start(workspace, ID, CLAIM, refused)
    second = runs.find_claim(workspace, CLAIM)
    assert second is first
    for waiting in (first, first.again()):
        with pytest.raises(Busy):
            await waiting.result()
    assert runs.find_claim(workspace, CLAIM) is None
    assert runs.find(workspace, ID) is None


async def test_logs_of_ended_runs_make_room(workspace: Workspace) -> None:
    memory = LogMemory(limit=300_000)
    runs = Runs(memory)

    async def talk(running: Running) -> RunResult:
        running.log.add("stdout", {"text": "x" * 90_000})
        return result_of(running.execution_id)

    ids = [f"{number:032x}" for number in range(8)]
    for execution_id in ids:
        await runs.start(workspace, execution_id, None, talk).result()
    assert [runs.find(workspace, execution_id) is not None for execution_id in ids] == [False] * 5 + [True] * 3
    assert memory.used <= 300_000
