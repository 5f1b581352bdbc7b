"""What tools ask of a conversation, seen at a service that only notes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from runner.conversations.output import StoredBlob, StreamText
from runner.conversations.result import Artifact, RunResult
from runner.errors import InvalidRequest
from runner.limits.config import LimitsConfig
from runner.model import FileEntry, InterpreterState, Outcome, RunRequest
from runner.tools.attachments import ZipArguments, ZipAttachments
from runner.tools.base import Call, Deployment
from runner.tools.gate import Gate
from runner.tools.read_output import ReadArguments, ReadSandboxOutput
from runner.tools.run_in_sandbox import ProgramArguments, RunInSandbox

ID = "0" * 32
ENTRY = FileEntry("outputs/attachments.zip", 9, "1" * 64, "b")


def result(said: str = "", **more: Any) -> RunResult:
    text = StreamText(said, False, len(said), None)
    known: dict[str, Any] = {"outcome": Outcome.OK, "exit_code": 0, "stdout": text} | more
    return RunResult(
        execution_id=ID, signal=None, duration_ms=1, peak_memory_bytes=None,
        stderr=StreamText("", False, 0, None), results=[], error=None, interpreter=InterpreterState.NEW,
        interpreter_reason="network_changed", version=1, **known,
    )  # fmt: skip


class Service:
    """Answers each run with ``answer``; ``content`` is the kept stream of the one that ran before."""

    def __init__(self, answer: RunResult, files: list[FileEntry] | None = None) -> None:
        self.answer, self.asked = answer, list[RunRequest]()
        self.content, self.total, self.going, self.most = b"", 0, 0, 0
        self.limits = LimitsConfig.from_env({})
        self.workspace, self.log = self, self
        self.files = {entry.path: entry for entry in files or []}
        self.go = asyncio.Event()
        self.go.set()

    async def begin(self, tenant: str, conversation: str, request: RunRequest, *, announced: bool) -> Any:
        self.asked.append(request)
        return self

    async def result(self) -> RunResult:
        self.going += 1
        self.most = max(self.most, self.going)
        await self.go.wait()
        self.going -= 1
        return self.answer

    async def known(self, tenant: str, conversation: str) -> Any:
        return self

    find = known

    async def execution(self, tenant: str, conversation: str, execution_id: str) -> Any:
        return self

    @property
    def ended_with(self) -> RunResult:
        return result(stdout=StreamText("", True, self.total, StoredBlob("b", len(self.content), "text/plain")))

    async def execution_blob(self, *_: object) -> tuple[None, AsyncIterator[bytes]]:
        async def stream() -> AsyncIterator[bytes]:
            for at in range(0, len(self.content), 1 << 16):
                yield self.content[at : at + (1 << 16)]

        return None, stream()


def call_of(service: Service, tenant: str = "t", gate: Gate | None = None) -> Call:
    return Call(cast(Any, service), cast(Any, None), Deployment(True), tenant, "c", 1 << 20, gate or Gate())


def grep(service: Service, tenant: str = "t", gate: Gate | None = None, **more: Any) -> Any:
    arguments = ReadArguments.model_validate({"id": f"{ID}/stdout.txt", "action": "grep", "query": "x", **more})
    return ReadSandboxOutput().run(call_of(service, tenant, gate), arguments)


# -- whose sandbox, and with network or without ------------------------------------------------------------------


@pytest.mark.parametrize("asked", [True, False, None])
async def test_a_program_gets_the_network_that_it_asks_for(asked: bool | None) -> None:
    service = Service(result())
    arguments = ProgramArguments(language="bash", code="true", fresh=False, network=asked)
    told = (await RunInSandbox().run(call_of(service), arguments)).body
    assert [request.network for request in service.asked] == [asked]
    assert (told["interpreter"], told["interpreter_reason"]) == ("new", "network_changed")


async def test_what_tools_run_themselves_leaves_the_sandbox_as_it_is() -> None:
    service = Service(result('\x1egrep:{"count": 0, "lines": []}'), [FileEntry("a.txt", 1, "0" * 64, "b"), ENTRY])
    service.content, service.total = b"x\n", 2
    await grep(service)
    await ZipAttachments().run(call_of(service), ZipArguments(paths=["a.txt"], filename=None))
    assert [(request.network, request.fresh) for request in service.asked] == [("keep", True)] * 2


# -- archives ----------------------------------------------------------------------------------------------------


async def test_an_archive_that_is_the_same_as_before_is_an_archive() -> None:
    service = Service(result(), [FileEntry("a.txt", 1, "0" * 64, "b"), ENTRY])
    made = await ZipAttachments().run(call_of(service), ZipArguments(paths=["a.txt"], filename=None))
    assert (made.body["size"], made.files) == (9, [Artifact(ENTRY.path, "modified", ENTRY)])


@pytest.mark.parametrize("failed", [{"outcome": Outcome.ERROR}, {"files_error": {"code": "quota_exceeded"}}])
async def test_an_older_archive_is_not_given_for_one_that_was_not_made(failed: dict[str, Any]) -> None:
    call = call_of(Service(result(), [ENTRY]))
    assert await call.made(result(), ENTRY.path) is not None
    assert await call.made(result(**failed), ENTRY.path) is None


# -- long output -------------------------------------------------------------------------------------------------


async def test_what_is_not_kept_of_a_stream_is_told() -> None:
    service = Service(result("\x1egrep:" + json.dumps({"count": 1, "lines": [2]})))
    service.content, service.total = b"a\nx\n", 20
    for body in ((await grep(service)).body, (await grep(service, action="head")).body):
        assert (body["truncated"], body["searched_bytes"], body["total_bytes"]) == (True, 4, 20)
        assert body["content"].endswith("\n[4 of 20 bytes of this output are kept and were looked at]")
    service.total = 4
    whole = (await grep(service)).body
    assert (whole["truncated"], whole["content"], whole["matched_lines"]) == (False, "2: x", 1)
    assert "searched_bytes" not in whole


async def test_what_the_sandbox_says_of_lines_is_not_believed() -> None:
    answer = {"count": 1 << 80, "lines": [3, 99, -1, True, "x", 1, 1, 1 << 70]}
    service = Service(result("\x1egrep:" + json.dumps(answer)))
    service.content, service.total = b"a\r\rb\nc\rd\ne\n", 11
    body = (await grep(service)).body
    assert (body["content"], body["returned_lines"], body["matched_lines"]) == ("1: a\r\rb\n3: e", 2, 3)


async def test_a_tenant_searches_once_at_a_time_and_others_do_not_wait() -> None:
    service, gate = Service(result('\x1egrep:{"count": 0, "lines": []}')), Gate()
    service.content, service.total = b"a\n", 2
    service.go.clear()
    tasks = [asyncio.ensure_future(grep(service, tenant, gate)) for tenant in ("one", "one", "one", "two")]
    async with asyncio.timeout(5):
        while service.going < 2:
            await asyncio.sleep(0.001)
        head = await grep(service, "one", gate, action="head")
        assert head.body["content"] == "1: a" and service.going == 2
        service.go.set()
        await asyncio.gather(*tasks)
    assert (service.most, len(service.asked)) == (2, 4)


# -- two names of one argument -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "given", "field", "rest"), [
    (ZipArguments, {"paths": ["a"], "ids": ["b"]}, "paths", {}),
    (ReadArguments, {"id": "a", "path": "b"}, "id", {}),
    (ProgramArguments, {"attachments": [{"path": "a", "id": "b"}]}, "path", {"language": "bash", "code": "1"}),
])  # fmt: skip
def test_both_names_of_an_argument(model: Any, given: dict[str, Any], field: str, rest: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"mean the same: write `{field}` alone"):
        model.model_validate({**given, **rest})
    same = json.loads(json.dumps(given).replace('"b"', '"a"'))
    assert model.model_validate({**same, **rest})


async def test_the_archive_cannot_be_in_itself() -> None:
    call = call_of(Service(result(), [ENTRY]))
    with pytest.raises(InvalidRequest, match="the archive itself: choose another `filename`"):
        await ZipAttachments().run(call, ZipArguments(paths=["attachments.zip"], filename=None))
