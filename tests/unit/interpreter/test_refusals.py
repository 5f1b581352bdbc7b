"""What the caller is told when the agent refuses a run, or answers no interrupt."""

from __future__ import annotations

import asyncio
import errno
import os
import time

import pytest

from runner.agent.protocol import Json
from runner.errors import FolioboxError, InvalidRequest, QuotaExceeded, SandboxLost
from runner.interpreter.client import SandboxClient
from runner.model import RunRequest
from tests.unit.interpreter.test_stream import FakeAgent, pair


async def refusal(reply: Json) -> FolioboxError:
    async def refuse(agent: FakeAgent) -> None:
        body = await agent.requests.get()
        agent.say({"op": "reply", "id": body["id"], "ok": False, **reply})

    async with pair() as (client, agent):
        refusing = asyncio.create_task(refuse(agent))
        with pytest.raises(FolioboxError) as raised:
            await _begin(client)
        await refusing
    return raised.value


async def _begin(client: SandboxClient) -> None:
    async for _ in client.run("r", RunRequest(code="", language="bash")):
        pass


async def test_too_much_environment_is_the_callers_mistake() -> None:
    error = await refusal({"code": "os_error", "errno": errno.E2BIG, "detail": "Argument list too long"})
    assert isinstance(error, InvalidRequest)
    assert error.detail == "env and arguments are too large; put the data into a file"


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        ({"code": "os_error", "errno": errno.EAGAIN, "detail": "no processes"}, "the run was refused: no processes"),
        ({"detail": ["odd"], "errno": "7"}, "the run was refused: it did not say why"),
    ],
)
async def test_any_other_refusal_loses_the_sandbox_and_reads_well(reply: Json, cause: str) -> None:
    error = await refusal(reply)
    assert isinstance(error, SandboxLost)
    assert error.cause == cause


async def test_an_interrupt_without_an_answer_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.interpreter.client._INTERRUPT_S", 0.1)
    async with pair() as (client, _):
        began = time.monotonic()
        with pytest.raises(SandboxLost):
            await client.interrupt("r")
        assert time.monotonic() - began < 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None])
async def test_files_that_do_not_fit_are_no_fault_of_the_protocol(number: int | None) -> None:
    """A file larger than the whole workspace meets the limit of sizes before that of the space."""
    said: Json = {"code": "os_error", "errno": number, "detail": os.strerror(number or errno.ENOSPC)}

    async def refuse(agent: FakeAgent) -> None:
        body = await agent.requests.get()
        agent.say({"op": "reply", "id": body["id"], "ok": False, **said})

    async with pair() as (client, agent):
        refusing = asyncio.create_task(refuse(agent))
        with pytest.raises(QuotaExceeded):
            await client.put((), {"a": "b"}, ())
        await refusing
