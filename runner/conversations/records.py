"""What is durable of a run: that it began, how it ended, and which Idempotency-Key it was sent under."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from runner.agent.protocol import Json
from runner.conversations.output import StoredBlob, StreamText
from runner.conversations.result import Artifact, RunResult, nothing_ran
from runner.errors import Conflict, FolioboxError, InvalidRequest, KeyReused, NotFound, StoreFailed, TooLarge
from runner.model import FileEntry, InterpreterState, Outcome, RunRequest
from runner.telemetry.logs import logger
from runner.workspace.executions import ExecutionRecord
from runner.workspace.history import Workspace
from runner.workspace.manifest import now
from runner.workspace.owners import Owners

RESTARTED: Final = "runner_restarted"
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
_SHORT: Final = 16 << 10
_AT_ONCE_S: Final = 0.25
_VERSIONS: Final = 100
_GENERATIONS: Final = 100
_PLAIN: Final = (
    "execution_id", "exit_code", "signal", "duration_ms", "peak_memory_bytes", "results", "results_dropped", "error",
    "interpreter_reason", "version", "files_error", "files_dropped", "skipped", "record_error",
)  # fmt: skip
_ENTRY: Final = tuple(field.name for field in fields(FileEntry))
log = logger("records")


@dataclass(frozen=True, slots=True)
class Claim:
    """An Idempotency-Key with the SHA-256 of the request that it was sent with."""

    key: str
    request: str

    @classmethod
    def of(cls, key: str, request: RunRequest) -> Self:
        """Raises InvalidRequest for what is no key."""
        if not _KEY.fullmatch(key):
            raise InvalidRequest("Idempotency-Key: 1 to 255 visible ASCII characters, without spaces")
        return cls(key, fingerprint(request))

    def check(self, earlier: str) -> None:
        """Raises KeyReused when the key was used with another request."""
        if earlier != self.request:
            raise KeyReused(
                "this Idempotency-Key came before with another request to this conversation; take a new key"
            )


def fingerprint(request: RunRequest) -> str:
    """SHA-256 of a request in a form that the order of its fields does not change."""
    limits = request.limits
    canonical: Json = {
        "code": request.code,
        "language": request.language,
        "timeout_ms": request.timeout_ms,
        "fresh": request.fresh,
        "stdin": None if request.stdin is None else hashlib.sha256(request.stdin).hexdigest(),
        "env": dict(request.env),
        "limits": [limits.output_bytes, limits.artifacts, limits.artifact_bytes],
        **(
            {} if request.network is None else {"network": request.network}
        ),  # as keys were claimed before there was any
    }
    canonical |= {name: True for name in ("script", "detached", "bare") if getattr(request, name)}
    canonical |= {"inputs": request.inputs} if request.inputs else {}
    return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()


class RunRecord:
    """The durable trace of one run. ``begin``, then exactly one of ``end``, ``refuse`` and ``lose``.

    Begun is written beside the run, and before anything of it is told. With a key the run waits for it: a key
    is claimed only for a run that is about to be sent, and a run is sent only under a key that it has claimed.
    While nobody can know its id before its outcome (``announced`` False), a run that ends at once has its end
    written alone: what a crash cuts off then is a run that nobody can ask for, unless a version names it.
    """

    def __init__(self, workspace: Workspace, execution_id: str, claim: Claim | None, *, announced: bool = True) -> None:
        self._workspace, self._id, self._claim = workspace, execution_id, claim
        self._at_once = announced or claim is not None
        self._later: asyncio.TimerHandle | None = None
        self._begun: asyncio.Task[None] | None = None

    async def begin(self, version: int | None = None) -> None:
        """Start writing; with a key, return when both are durable. Raises Conflict when another took the key.

        ``version``: of which the sandbox has the files, if not the newest.
        """
        payload = {"began_at": now(), "version": self._workspace.version if version is None else version}
        if not self._at_once:
            self._later = asyncio.get_running_loop().call_later(_AT_ONCE_S, self._write, payload)
            return
        self._write(payload)
        if self._claim is None:
            return
        await self.durable()
        try:
            await self._claim_key(self._claim)
        except FolioboxError as error:
            await self.refuse(error)
            raise

    async def _claim_key(self, claim: Claim) -> None:
        """Claim the key, anew where the run that claimed it before was refused: that one never runs."""
        payload = {"execution_id": self._id, "request": claim.request}
        if await self._workspace.claim(claim.key, payload) is None:
            return
        generation, earlier = await _standing(self._workspace, claim.key)
        if generation == _GENERATIONS:
            raise InvalidRequest(f"{_GENERATIONS} runs under this Idempotency-Key were refused; take a new key")
        if earlier is not None or await self._workspace.claim(claim.key, payload, generation + 1) is not None:
            raise Conflict("another runner began a run under this Idempotency-Key just now; send it again")

    def _write(self, payload: Json) -> None:
        self._begun = asyncio.create_task(self._workspace.begin_execution(self._id, payload))
        self._begun.add_done_callback(_seen)

    async def durable(self) -> None:
        """Until it is durable that the run began, where that is being written. Raises StoreFailed."""
        if self._begun is not None:
            await asyncio.shield(self._begun)

    async def end(self, result: RunResult, blobs: list[StoredBlob], seq: int) -> RunResult:
        """Make a result the outcome; gives what is to be told, also when the store does not take it.

        Another outcome that stands already is told instead. ``seq`` is the number of the event ``done``.
        """
        try:
            if await self._end(payload_of(result, blobs, seq)):
                return result
            record = await self._workspace.read_execution(self._id)
            if record is None or record.end is None:
                raise StoreFailed("the record of this run cannot be read", cause=f"ended twice: {self._id}")
            return stored(record.end).result
        except TooLarge as error:
            return await self._end_reduced(result, blobs, seq, error)
        except FolioboxError as error:
            log.error("a run could not be recorded", execution=self._id, code=error.code, cause=error.cause)
            return _unrecorded(result, error)

    async def ended(self) -> None:
        """Its outcome, made by ``payload_of``, became durable with the version that the run made."""
        self._begin_no_more()
        with contextlib.suppress(FolioboxError):  # only that it began is not known then, and nobody asks any more
            await self.durable()

    def _begin_no_more(self) -> None:
        if self._later is not None:
            self._later.cancel()

    async def _end_reduced(self, result: RunResult, blobs: list[StoredBlob], seq: int, error: TooLarge) -> RunResult:
        told = {"code": error.code, "detail": "the result is too large to be kept whole: what was shown was cut"}
        less = replace(
            result,
            stdout=result.stdout.cut(_SHORT),
            stderr=result.stderr.cut(_SHORT),
            results=[],
            results_dropped=result.results_dropped + len(result.results),
            files=result.files[:1000],
            files_dropped=result.files_dropped + len(result.files[1000:]),
            record_error=told,
        )
        try:
            await self._end(payload_of(less, blobs, seq))
        except FolioboxError as failure:
            return _unrecorded(result, failure)
        return replace(result, record_error=told)

    async def refuse(self, error: FolioboxError) -> None:
        """The run was refused before any of it was executed: it counts as never begun."""
        await self._try_end({"refused": {"code": error.code, "detail": error.detail}})

    async def lose(self, result: RunResult) -> None:
        """A fault of ours took the run's outcome."""
        await self._try_end(payload_of(result, [], 1))

    async def _try_end(self, payload: Json) -> None:
        try:
            await self._end(payload)
        except FolioboxError as error:
            log.warning("a run could not be recorded", execution=self._id, code=error.code, cause=error.cause)

    async def _end(self, payload: Json) -> bool:
        self._begin_no_more()
        await self.durable()
        return await self._workspace.end_execution(self._id, payload)


@dataclass(frozen=True, slots=True)
class Stored:
    """An outcome out of the store: the result, the number of its event, and what it refers to."""

    result: RunResult
    seq: int
    blobs: list[StoredBlob]


async def outcome(workspace: Workspace, owners: Owners, execution_id: str) -> Stored:
    """How a run that is not going on here ended. One without an end was lost, and that becomes its outcome.

    Raises NotFound, and OwnedElsewhere when it may be going on at another runner.
    """
    record = await workspace.read_execution(execution_id) or await _of_a_version(workspace, execution_id)
    if record is None:
        raise NotFound("there is no such execution in this conversation, or it is not kept any more")
    if record.end is None:
        await owners.check(workspace)
        result = await lost(workspace, execution_id, record)
        if await workspace.end_execution(execution_id, payload_of(result, [], 1)):
            log.warning("a run was lost", execution=execution_id)
        record = await workspace.read_execution(execution_id)
        if record is None or record.end is None:
            raise NotFound("this execution is not kept any more")
    refused = record.end.get("refused")
    if refused is not None:
        raise NotFound("this execution was refused before it began")
    return stored(record.end)


async def _of_a_version(workspace: Workspace, execution_id: str) -> ExecutionRecord | None:
    """A run without a record: it stored its files and was cut off before it could say how it ended."""
    for info in await workspace.versions(limit=_VERSIONS):
        if info.cause.execution_id == execution_id:
            return ExecutionRecord({"version": info.version - 1}, None)
    return None


async def claimed(workspace: Workspace, claim: Claim) -> str | None:
    """The execution that claimed a key earlier and was not refused, if any. Raises KeyReused."""
    _, earlier = await _standing(workspace, claim.key)
    if earlier is None:
        return None
    claim.check(str(earlier.get("request")))
    return str(earlier.get("execution_id"))


async def _standing(workspace: Workspace, key: str) -> tuple[int, Json | None]:
    """How often a key was claimed, and the last claim; None in its place when its run was refused.

    Only the last one counts: a key is claimed again only after the run that had it was refused.
    """
    generation, last = 0, None
    while generation < _GENERATIONS and (found := await workspace.read_claim(key, generation + 1)) is not None:
        generation, last = generation + 1, found
    if last is not None:
        record = await workspace.read_execution(str(last.get("execution_id")))
        if record is not None and record.end is not None and record.end.get("refused") is not None:
            return generation, None
    return generation, last


async def lost(workspace: Workspace, execution_id: str, record: ExecutionRecord) -> RunResult:
    """The result of a run whose runner was gone before it could say how it ended.

    Its files may have been stored before that: ``version`` is then the one that the run made.
    """
    began = int(record.begin.get("version", 0))
    version = await version_of(workspace, execution_id, began) or began
    return nothing_ran(execution_id, Outcome.LOST, version, InterpreterState.LOST, RESTARTED)


async def version_of(workspace: Workspace, execution_id: str, after: int) -> int | None:
    """The version above ``after`` that a run made, if any."""
    for info in await workspace.versions(limit=_VERSIONS):
        if info.version <= after:
            break
        if info.cause.execution_id == execution_id:
            return info.version
    return None


def _unrecorded(result: RunResult, error: FolioboxError) -> RunResult:
    detail = f"{error.detail.rstrip('.')}. The run took place; its result is not kept."
    return replace(result, record_error={"code": error.code, "detail": detail})


# -- results as JSON -------------------------------------------------------------------------------------------


def payload_of(result: RunResult, blobs: list[StoredBlob], seq: int) -> Json:
    """An outcome as it is stored; ``seq`` is the number of the event ``done``."""
    full = [text.full for text in (result.stdout, result.stderr) if text.full is not None]
    return {
        "ended_at": now(),
        "seq": seq,
        "result": to_json(result),
        "shown": [_blob_row(blob) for blob in blobs],
        "blobs": sorted({blob.blob for blob in (*blobs, *full) if blob.kept}),
    }


def stored(end: Json) -> Stored:
    """An end record read. Raises StoreFailed for a damaged one."""
    try:
        blobs = [StoredBlob(*row) for row in end["shown"]]
        return Stored(from_json(end["result"]), int(end["seq"]), blobs)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreFailed(
            "the stored result of this run is damaged; restore it from a backup", cause=repr(error)
        ) from None


def to_json(result: RunResult) -> Json:
    """A result as JSON that ``from_json`` reads back."""
    body: Json = {name: getattr(result, name) for name in _PLAIN}
    body["outcome"], body["interpreter"] = result.outcome.value, result.interpreter.value
    for name, text in (("stdout", result.stdout), ("stderr", result.stderr)):
        body[name] = [text.text, text.truncated, text.total, text.full and _blob_row(text.full)]
    body["files"] = [_artifact_row(artifact) for artifact in result.files]
    return body


def from_json(body: Json) -> RunResult:
    """A result. Raises KeyError, TypeError or ValueError for what is none."""
    known: dict[str, Any] = {name: body[name] for name in _PLAIN}
    for name in ("stdout", "stderr"):
        text, truncated, total, full = body[name]
        known[name] = StreamText(text, truncated, total, None if full is None else StoredBlob(*full))
    return RunResult(
        **known,
        outcome=Outcome(body["outcome"]),
        interpreter=InterpreterState(body["interpreter"]),
        files=[_artifact(*row) for row in body["files"]],
    )


def _blob_row(blob: StoredBlob) -> list[object]:
    return [blob.blob, blob.size, blob.media_type]


def _artifact_row(artifact: Artifact) -> list[object]:
    entry = artifact.entry
    row = None if entry is None else [getattr(entry, name) for name in _ENTRY]
    return [artifact.path, artifact.change, artifact.renamed_from, row]


def _artifact(path: str, change: Any, renamed_from: str | None, row: list[Any] | None) -> Artifact:
    return Artifact(path, change, None if row is None else FileEntry(*row), renamed_from)


def _seen(task: asyncio.Task[None]) -> None:
    """A failure is raised by ``durable``; nobody may come to ask."""
    if not task.cancelled():
        task.exception()
