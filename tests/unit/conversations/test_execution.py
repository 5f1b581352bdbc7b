"""The order of a run: nothing is told before it is durable, and what is not durable is not told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from runner.conversations.events import EventLog
from runner.conversations.execution import Execution
from runner.conversations.records import Claim, outcome
from runner.conversations.runs import Running
from runner.conversations.sync import Mirror
from runner.errors import InvalidRequest, StoreFull
from runner.interpreter.client import ChangedFile, Event, RunEnd, SandboxClient
from runner.interpreter.outcomes import Observed
from runner.model import InterpreterState, Outcome, RunLimits, RunRequest, SandboxUsage
from runner.workspace.history import Workspace
from runner.workspace.owners import Owners

ID = "a" * 32
REQUEST = RunRequest("print(1)")
_STREAM = {"total": 2, "forwarded": 2, "tail": ""}
END = RunEnd(Observed("python", "ok", 0, None, None), 3, "kept", None, None, 0, {"stdout": _STREAM, "stderr": _STREAM})


class Sandbox:
    """Stands for a sandbox and its client: one cell that prints."""

    def __init__(self, *, refusal: Exception | None = None) -> None:
        self.sandbox, self.alive, self.refusal = self, True, refusal
        self.sent = asyncio.Event()
        self.interrupted = asyncio.Event()
        self.endless = False
        self.end = END
        self.fetching = asyncio.Event()
        self.acknowledged: list[str] = []

    async def reset_peak(self) -> None:
        pass

    async def usage(self) -> SandboxUsage:
        return SandboxUsage(1, 2, 0)

    async def run(self, run_id: str, request: RunRequest, *_: object) -> AsyncIterator[Event | RunEnd]:
        self.sent.set()
        if self.refusal is not None:
            raise self.refusal
        yield Event(1, "started", {"interpreter": "new"})
        yield Event(2, "stdout", {"text": "1\n"})
        if self.endless:
            await self.interrupted.wait()
        yield self.end

    async def fetch(self, path: str, limit: int) -> AsyncIterator[bytes]:
        self.fetching.set()
        yield b"1"
        await asyncio.Event().wait()

    def acknowledge(self, run_id: str, mark: object) -> None:
        self.acknowledged.append(run_id)

    async def destroy(self) -> None:
        self.alive = False


class Owner:
    """Stands for a conversation."""

    def __init__(self, workspace: Workspace, sandbox: Sandbox) -> None:
        self.workspace, self.sandbox = workspace, sandbox
        self.dropped: list[str | None] = []
        self.closing = False

    def run_limits(self, request: RunRequest) -> RunLimits:
        return RunLimits(1000, 10, 1000)

    def base_url(self, execution_id: str) -> str:
        return "/x"

    def mark(self, run: object = None) -> None:
        return None

    async def drop(self, reason: str | None) -> None:
        self.dropped.append(reason)

    async def interrupt(self, execution_id: str | None) -> bool:
        self.sandbox.interrupted.set()
        return True

    def interpreter_state(self, *_: Any) -> tuple[InterpreterState, str | None]:
        return InterpreterState.KEPT, None


def prepare(workspace: Workspace, sandbox: Sandbox, claim: Claim | None = None) -> tuple[Execution, EventLog, Owner]:
    owner, log = Owner(workspace, sandbox), EventLog()
    mirror = Mirror(workspace, cast(SandboxClient, sandbox))
    return Execution(owner, mirror, Running(ID, log, claim), REQUEST), log, owner


def gate(monkeypatch: pytest.MonkeyPatch, workspace: Workspace, name: str) -> tuple[asyncio.Event, asyncio.Event]:
    """Make a write wait: whether it was asked for, and the leave to go on."""
    asked, leave, write = asyncio.Event(), asyncio.Event(), getattr(workspace, name)

    async def gated(*arguments: Any) -> Any:
        asked.set()
        await leave.wait()
        return await write(*arguments)

    monkeypatch.setattr(workspace, name, gated)
    return asked, leave


async def test_nothing_is_told_before_it_is_durable(
    workspace: Workspace, owners: Owners, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = gate(monkeypatch, workspace, "begin_execution")
    end, ended = gate(monkeypatch, workspace, "end_execution")
    sandbox = Sandbox()
    execution, log, _ = prepare(workspace, sandbox)
    async with asyncio.timeout(10):
        work = asyncio.create_task(execution.go())
        await begin.wait()
        await sandbox.sent.wait()  # beside the write
        for _ in range(50):
            await asyncio.sleep(0)
        assert log.seq == 0
        begun.set()
        await end.wait()
        assert log.seq == 2
        assert sandbox.acknowledged == []
        ended.set()
        result = await work
    assert [event.kind async for event in _all(log, result)] == ["started", "stdout", "done"]
    assert sandbox.acknowledged == [ID]
    assert (await outcome(workspace, owners, ID)).result == result


async def _all(log: EventLog, result: Any) -> AsyncIterator[Any]:
    log.end(result)
    async for event in log.follow():
        yield event


async def test_under_a_key_the_run_waits_for_its_claim(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, leave = gate(monkeypatch, workspace, "claim")
    sandbox = Sandbox()
    execution, _, _ = prepare(workspace, sandbox, Claim.of("k", REQUEST))
    async with asyncio.timeout(10):
        work = asyncio.create_task(execution.go())
        await asked.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        assert not sandbox.sent.is_set()
        leave.set()
        assert (await work).outcome is Outcome.OK


async def test_a_run_whose_begin_cannot_be_written_is_stopped_and_not_told(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreFull("The disk is full.")

    monkeypatch.setattr(workspace, "begin_execution", full)
    sandbox = Sandbox()
    sandbox.endless = True
    execution, log, owner = prepare(workspace, sandbox)
    async with asyncio.timeout(10):
        with pytest.raises(StoreFull):
            await execution.go()
    assert log.seq == 0
    assert sandbox.interrupted.is_set()
    assert owner.dropped == []  # an interpreter that obeys keeps its variables
    assert execution.mirror.version == -1  # its files are put back before the next run
    assert await workspace.read_execution(ID) is None


async def test_storing_that_is_broken_off_leaves_the_outcome_and_tells_why(workspace: Workspace) -> None:
    sandbox = Sandbox()
    sandbox.end = replace(END, changes=[ChangedFile("f", "created", 9)])
    execution, _, owner = prepare(workspace, sandbox)
    async with asyncio.timeout(10):
        work = asyncio.create_task(execution.go())
        await sandbox.fetching.wait()
        assert execution.mirror.stop_storing()
        result = await work
    assert (result.outcome, result.files, result.version) == (Outcome.OK, [], 0)
    assert result.files_error is not None
    assert result.files_error["code"] == "interrupted"
    assert "Nothing of this run was stored" in result.files_error["detail"]
    assert (owner.dropped, execution.mirror.version) == ([], -1)


async def test_nothing_is_fetched_for_a_conversation_that_is_being_deleted(workspace: Workspace) -> None:
    sandbox = Sandbox()
    sandbox.end = replace(END, changes=[ChangedFile("f", "created", 9)])
    execution, _, owner = prepare(workspace, sandbox)
    owner.closing = True
    async with asyncio.timeout(10):
        result = await execution.go()
    assert not sandbox.fetching.is_set()
    assert result.files_error is not None
    assert result.files_error["code"] == "interrupted"


async def test_a_refused_run_is_ended_as_never_begun(workspace: Workspace) -> None:
    execution, log, _ = prepare(workspace, Sandbox(refusal=InvalidRequest("too much env")))
    with pytest.raises(InvalidRequest):
        await execution.go()
    record = await workspace.read_execution(ID)
    assert record is not None
    assert record.end is not None
    assert record.end["refused"]["code"] == "invalid_arguments"
    assert log.seq == 0


async def test_a_fault_of_ours_leaves_an_outcome(workspace: Workspace, owners: Owners) -> None:
    execution, _, owner = prepare(workspace, Sandbox(refusal=RuntimeError("a bug")))
    with pytest.raises(RuntimeError):
        await execution.go()
    assert owner.dropped == ["sandbox_lost"]
    assert (await outcome(workspace, owners, ID)).result.outcome is Outcome.LOST
