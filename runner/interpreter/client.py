"""What the host can ask of one live sandbox: fill it with files, run cells, fetch files, interrupt, reset.

Everything a sandbox says is checked here: types, lengths, names and counts, before any other code sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.agent.protocol import MAX_ENTRIES, Json
from runner.backends.base import Sandbox
from runner.errors import ProtocolError, QuotaExceeded, SandboxLost
from runner.interpreter.outcomes import Observed
from runner.interpreter.stream import AgentStream, Item
from runner.model import ChangeKind, FileEntry, RunRequest, SandboxUsage
from runner.workspace import paths

INLINE = 64 << 10
_BATCH = 512 << 10
_GRACE_S = 15.0
_TEXT_LIMIT = 1 << 20
EVENT_KINDS = frozenset(("started", "stdout", "stderr", "display", "done"))


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run, as the agent sent it; ``body`` is validated for the kinds that carry data."""

    seq: int
    kind: str
    body: Json
    attachments: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that the agent says was changed; its bytes still lie in the sandbox."""

    path: str
    change: ChangeKind
    size: int = 0
    mode: int = 0o644
    modified_ns: int = 0


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Everything the last event of a run says."""

    observed: Observed
    duration_ms: int
    interpreter: str
    error: Json | None
    failure: str | None
    survivors: int
    streams: dict[str, Json]
    changes: list[ChangedFile] = field(default_factory=list)
    links: dict[str, str] | None = None
    folders: list[str] | None = None
    skipped: list[Json] = field(default_factory=list)
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A file to write into the sandbox: small content inline, larger content as chunks."""

    entry: FileEntry
    content: bytes | None = None
    chunks: AsyncIterator[bytes] | None = None


class SandboxClient:
    """A sandbox with somebody listening at its stream."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.stream = AgentStream(sandbox.reader, sandbox.writer)

    @property
    def sandbox_id(self) -> str:
        """The id of the sandbox."""
        return self.sandbox.sandbox_id

    @property
    def alive(self) -> bool:
        """Whether the stream still works."""
        return self.stream.failure is None

    async def attach(self, limit_s: float) -> Json:
        """Say hello to the agent. Raises SandboxLost."""
        return await self.stream.attach(limit_s)

    async def wait_ready(self, limit_s: float) -> None:
        """Until an interpreter waits for its first cell. Raises SandboxLost."""
        try:
            await asyncio.wait_for(self.stream.ready.wait(), limit_s)
        except TimeoutError:
            raise SandboxLost("the sandbox did not become ready; send the request again") from None
        if self.stream.failure is not None:
            raise self.stream.failure

    # -- files -----------------------------------------------------------------------------------------------

    async def put(self, files: Sequence[Outgoing], links: dict[str, str], folders: Iterable[str]) -> None:
        """Write files, links and empty folders. Raises QuotaExceeded when the sandbox's space is too small."""
        batch: list[Json] = [{"path": path, "link": target} for path, target in links.items()]
        batch += [{"path": path, "folder": True} for path in folders]
        contents: list[bytes] = []
        size = 0
        for file in files:
            if file.content is None:
                await self._upload(file)
                continue
            batch.append({
                "path": file.entry.path, "mode": file.entry.mode, "modified_ns": file.entry.modified_ns,
            })  # fmt: skip
            contents.append(file.content)
            size += len(file.content)
            if size > _BATCH or len(batch) > 500:
                await self._put_batch(batch, contents)
                batch, contents, size = [], [], 0
        if batch:
            await self._put_batch(batch, contents)

    async def _put_batch(self, batch: list[Json], contents: list[bytes]) -> None:
        self._check(await self.stream.request({"op": "put", "files": batch}, tuple(contents)))

    async def _upload(self, file: Outgoing) -> None:
        assert file.chunks is not None
        number, reply = self.stream.expect()
        channel = self.stream.open_channel()
        entry = file.entry
        self.stream.tell({
            "op": "upload", "id": number, "channel": channel.number,
            "path": entry.path, "mode": entry.mode, "modified_ns": entry.modified_ns,
        })  # fmt: skip
        try:
            await self.stream.send(channel.number, file.chunks)
            self._check(await self.stream.reply_to(number, reply, _GRACE_S + entry.size / 1e6))
        finally:
            channel.close()

    async def remove(self, removed: Sequence[str]) -> None:
        """Remove files and links."""
        if removed:
            self._check(await self.stream.request({"op": "remove", "paths": list(removed)}))

    async def clear(self) -> None:
        """Empty the workspace."""
        self._check(await self.stream.request({"op": "clear"}))

    async def fetch(self, path: str, limit: int) -> AsyncIterator[bytes]:
        """Bytes of a file, at most ``limit``. Raises SandboxLost, or FileNotFoundError if it is gone."""
        channel = self.stream.open_channel()
        try:
            body: Json = {"op": "get", "path": path, "channel": channel.number, "limit": limit}
            reply = await self.stream.request(body)
            if not reply.get("ok"):
                raise FileNotFoundError(path)
            while (item := await channel.take()).data:
                yield item.data
        finally:
            channel.close()

    @staticmethod
    def _check(reply: Json) -> None:
        if reply.get("ok"):
            return
        if reply.get("errno") in (28, 122) or "No space" in str(reply.get("detail")):
            raise QuotaExceeded("the files do not fit into the sandbox's workspace; delete some or ask for more space")
        raise ProtocolError("the sandbox could not take the files", cause=str(reply.get("detail"))[:500])

    # -- runs ------------------------------------------------------------------------------------------------

    async def run(self, run_id: str, request: RunRequest) -> AsyncIterator[Event | RunEnd]:
        """Run a cell; gives its events and, last, its end. Raises SandboxLost when the sandbox dies."""
        channel = self.stream.open_channel()
        body: Json = {
            "op": "run", "run": run_id, "channel": channel.number, "language": request.language,
            "code": request.code, "fresh": request.fresh, "timeout_ms": request.timeout_ms,
            "env": dict(request.env),
        }  # fmt: skip
        try:
            reply = await self.stream.request(body, () if request.stdin is None else (request.stdin,))
            if not reply.get("ok"):
                raise SandboxLost("the sandbox refused the run; send it again", cause=str(reply)[:500])
            limit = request.timeout_ms / 1000 + _GRACE_S
            started = False
            while True:
                item = await self._take(channel.take(), limit if started else limit + 60)
                event = _event(item)
                started = started or event.kind == "started"
                if event.kind == "done":
                    yield _run_end(event.body, request.language)
                    return
                yield event
                self.stream.tell({"op": "ack", "run": run_id, "seq": event.seq})
        finally:
            channel.close()

    @staticmethod
    async def _take(arriving: Any, limit_s: float) -> Item:
        try:
            item = await asyncio.wait_for(arriving, limit_s)
        except TimeoutError:
            raise SandboxLost("the sandbox stopped answering and was ended", cause="run past its limit") from None
        assert isinstance(item, Item)
        return item

    def acknowledge(self, run_id: str) -> None:
        """The result of a run is stored: the agent may forget it."""
        if self.alive:
            self.stream.tell({"op": "ack", "run": run_id, "seq": 1 << 62, "final": True})

    async def interrupt(self, run_id: str) -> bool:
        """Interrupt a run; False when it is not going on."""
        reply = await self.stream.request({"op": "interrupt", "run": run_id})
        return bool(reply.get("running"))

    async def reset(self) -> None:
        """A new interpreter; files stay."""
        self._check(await self.stream.request({"op": "reset"}))

    async def ping(self) -> None:
        """A round trip through the agent."""
        self._check(await self.stream.request({"op": "ping"}))

    async def usage(self) -> SandboxUsage:
        """Counters from outside."""
        return await self.sandbox.usage()

    async def destroy(self) -> None:
        """End the sandbox and stop listening."""
        await self.stream.close()
        await self.sandbox.destroy()


def _event(item: Item) -> Event:
    body = item.body
    if body is None or not isinstance(body.get("seq"), int) or body.get("type") not in EVENT_KINDS:
        raise ProtocolError("the sandbox misbehaved and was ended", cause="malformed event")
    kind = body["type"]
    if kind in ("stdout", "stderr") and not _text(body.get("text")):
        raise ProtocolError("the sandbox misbehaved and was ended", cause="malformed output event")
    if kind == "display" and not (
        isinstance(body.get("data"), dict)
        and isinstance(body.get("binary"), list)
        and len(body["binary"]) == len(item.attachments)
        and all(isinstance(mime, str) and len(mime) < 256 for mime in (*body["binary"], *body["data"]))
    ):
        raise ProtocolError("the sandbox misbehaved and was ended", cause="malformed display event")
    return Event(body["seq"], kind, body, item.attachments)


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _TEXT_LIMIT


def _run_end(body: Json, language: str) -> RunEnd:
    try:
        changes = body["changes"]
        skipped = [
            {"path": str(entry["path"])[:1024], "reason": str(entry["reason"])[:200]}
            for entry in changes.get("skipped", [])[:100]
        ]
        return RunEnd(
            observed=Observed(
                language=language,
                status=_optional(body.get("status"), str),
                exit_code=_optional(body.get("exit_code"), int),
                signal=_optional(body.get("signal"), int),
                stopped_by=_optional(body.get("stopped_by"), str),
            ),
            duration_ms=int(body["duration_ms"]),
            interpreter=str(body["interpreter"]),
            error=_error(body.get("error")),
            failure=_optional(body.get("failure"), str),
            survivors=int(body["survivors"]),
            streams={name: _stream(body["streams"][name]) for name in ("stdout", "stderr")},
            changes=list(_changed(changes)),
            links=_links(changes["links"]) if "links" in changes else None,
            folders=_folders(changes["folders"]) if "folders" in changes else None,
            skipped=skipped,
            truncated=bool(changes.get("truncated")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError("the sandbox misbehaved and was ended", cause=f"malformed end: {error!r}") from None


def _optional(value: Any, kind: type) -> Any:
    if value is None or isinstance(value, bool) or not isinstance(value, kind):
        return None
    return str(value)[:2000] if kind is str else value


def _changed(changes: Json) -> Iterable[ChangedFile]:
    kinds: tuple[ChangeKind, ...] = ("created", "modified")
    total = sum(len(changes[kind]) for kind in (*kinds, "deleted"))
    if total > 2 * MAX_ENTRIES:
        raise ValueError("too many changes")
    for kind in kinds:
        for entry in changes[kind]:
            size, mode, modified_ns = (int(entry[name]) for name in ("size", "mode", "modified_ns"))
            if size < 0 or abs(modified_ns) >= 1 << 63:
                raise ValueError("impossible file size or time")
            yield ChangedFile(paths.check_reported(entry["path"]), kind, size, mode & 0o777, modified_ns)
    for name in changes["deleted"]:
        yield ChangedFile(paths.check_reported(name), "deleted")


def _links(links: Json) -> dict[str, str]:
    if len(links) > MAX_ENTRIES:
        raise ValueError("too many links")
    return {paths.check_reported(path): paths.check_target(target) for path, target in links.items()}


def _folders(folders: list[Any]) -> list[str]:
    if len(folders) > MAX_ENTRIES:
        raise ValueError("too many folders")
    return [paths.check_reported(folder) for folder in folders]


def _error(error: Any) -> Json | None:
    if not isinstance(error, dict):
        return None
    line = error.get("line")
    texts = {name: str(error.get(name, ""))[:80_000] for name in ("name", "message", "traceback")}
    return {**texts, "line": line if isinstance(line, int) else None}


def _stream(counts: Any) -> Json:
    return {
        "total": max(0, int(counts["total"])),
        "forwarded": max(0, int(counts["forwarded"])),
        "tail": str(counts["tail"])[: 1 << 17],
    }
