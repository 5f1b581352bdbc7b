"""Reads the events of a run as the agent sent them: checked for type, size, order and number before use."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from runner.agent.protocol import FILES_ALONG, MAX_ALONG, MAX_ENTRIES, MAX_NESTING, Json
from runner.errors import ProtocolError
from runner.interpreter.outcomes import Observed
from runner.interpreter.stream import Item
from runner.model import ChangeKind, Language
from runner.workspace import paths

EVENT_KINDS = frozenset(("started", "stdout", "stderr", "display", "changes", "done"))
_TEXT_LIMIT = 1 << 20
_TOO_DEEP = f"<nested too deep to show, the limit is {MAX_NESTING} levels>"


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
    displays_dropped: int = 0
    unusable: bool = False
    """No interpreter comes up in this sandbox any more."""
    contents: dict[str, bytes] = field(default_factory=dict)
    """Bytes of small files among the changes that came along; the others are to be fetched."""


@dataclass
class _Changes:
    """Pieces of a long list of changes, which come before the end."""

    changes: list[ChangedFile] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    def add(self, body: Json) -> None:
        """One piece. Raises ValueError beyond what a workspace can hold."""
        if _count(body) > 2 * MAX_ENTRIES:
            raise ValueError("too many changes at once")
        self.changes += _changed(body)
        self.links |= _links(body.get("links", {}))
        self.folders += _folders(body.get("folders", []))
        if max(len(self.changes) / 2, len(self.links), len(self.folders)) > MAX_ENTRIES:
            raise ValueError("too many changes")


class EventReader:
    """Reads one run's events in order. Raises ProtocolError for anything that is not one."""

    def __init__(self, language: Language, after: int) -> None:
        self._language = language
        self._seq = after
        self._earlier = _Changes()

    def read(self, item: Item) -> Event | RunEnd | None:
        """An event, the end of the run, or None for a piece of the end."""
        body = item.body
        if body is None or type(body.get("seq")) is not int or body.get("type") not in EVENT_KINDS:
            raise _misbehaved("malformed event")
        if body["seq"] != self._seq + 1:
            raise _misbehaved(f"event {body['seq']} after {self._seq}"[:200])
        self._seq += 1
        kind = body["type"]
        if kind == "done":
            return _run_end(body, self._language, self._earlier, item.attachments)
        if kind == "changes":
            try:
                self._earlier.add(body)
            except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
                raise _misbehaved(f"malformed changes: {error!r}"[:500]) from None
            return None
        if kind in ("stdout", "stderr") and not _text(body.get("text")):
            raise _misbehaved("malformed output event")
        if kind == "display":
            return _display(body, item.attachments)
        return Event(body["seq"], kind, body, item.attachments)


def entries(item: Item) -> int:
    """How many files, links and folders an item of a run's channel tells of."""
    body = item.body or {}
    return _count(body if body.get("type") == "changes" else body.get("changes"))


def _count(changes: Any) -> int:
    if not isinstance(changes, dict):
        return 0
    lists = (changes.get(name) for name in ("created", "modified", "deleted", "links", "folders"))
    return sum(len(some) for some in lists if isinstance(some, (list, dict)))


def _misbehaved(cause: str) -> ProtocolError:
    return ProtocolError("the sandbox misbehaved and was ended; send the request again", cause=cause)


def _display(body: Json, attachments: tuple[bytes, ...]) -> Event:
    """A display; texts that travelled as bytes are put back into ``data``, binary ones stay attachments.

    What is nested too deep is dropped, and a note shown instead: user code alone can bring that about.
    """
    data, binary, texts = body.get("data"), body.get("binary"), body.get("texts")
    if not (
        isinstance(data, dict)
        and isinstance(binary, list)
        and isinstance(texts, list)
        and len(binary) + len(texts) == len(attachments)
        and all(isinstance(mime, str) and len(mime) < 256 for mime in (*binary, *texts, *data))
    ):
        raise _misbehaved("malformed display event")
    shown = {**body}
    try:
        shown["data"], shown["metadata"] = _finite(data), _finite(body.get("metadata"))
    except _TooDeepError:
        shown |= {"data": {"text/plain": _TOO_DEEP}, "binary": [], "texts": [], "metadata": {}}
        return Event(body["seq"], "display", shown)
    long = zip(texts, attachments[len(binary) :], strict=True)
    shown["data"] |= {mime: text.decode("utf-8", "replace") for mime, text in long}
    return Event(body["seq"], "display", shown, attachments[: len(binary)])


class _TooDeepError(Exception):
    """Nested deeper than what every JSON writer can write."""


def _finite(value: Any, levels: int = MAX_NESTING + 1) -> Any:
    """The value without NaN and infinities, which JSON has not: they become null. Raises _TooDeepError."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if not isinstance(value, (dict, list)):
        return value
    if not levels:
        raise _TooDeepError
    if isinstance(value, dict):
        return {name: _finite(inner, levels - 1) for name, inner in value.items()}
    return [_finite(inner, levels - 1) for inner in value]


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _TEXT_LIMIT


def _run_end(body: Json, language: str, earlier: _Changes, attachments: tuple[bytes, ...]) -> RunEnd:
    try:
        changes = body["changes"]
        changed = earlier.changes + list(_changed(changes))
        skipped = [
            {"path": str(entry["path"])[:1024], "reason": str(entry["reason"])[:200]}
            for entry in changes.get("skipped", [])[:100]
        ]
        return RunEnd(
            observed=Observed(
                language=language,
                status=_optional(body.get("status"), str),
                exit_code=_within(body.get("exit_code"), 0, 255),
                signal=_within(body.get("signal"), 1, 64),
                stopped_by=_optional(body.get("stopped_by"), str),
            ),
            duration_ms=max(0, int(body["duration_ms"])),
            interpreter=str(body["interpreter"]),
            error=_error(body.get("error")),
            failure=_optional(body.get("failure"), str),
            survivors=int(body["survivors"]),
            streams={name: _stream(body["streams"][name]) for name in ("stdout", "stderr")},
            changes=changed,
            links={**earlier.links, **_links(changes["links"])} if "links" in changes else None,
            folders=earlier.folders + _folders(changes["folders"]) if "folders" in changes else None,
            skipped=skipped,
            truncated=bool(changes.get("truncated")),
            displays_dropped=max(0, int(body.get("displays_dropped", 0))),
            unusable=bool(body.get("unusable")),
            contents=_contents(body.get("contents", []), attachments, changed),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ProtocolError("the sandbox misbehaved and was ended", cause=f"malformed end: {error!r}") from None


def _contents(names: list[Any], attachments: tuple[bytes, ...], changed: list[ChangedFile]) -> dict[str, bytes]:
    """Files that came with the end. Raises ValueError unless they are all that are new or changed, and few, each of
    the size that it is said to have.
    """
    if not names and not attachments:
        return {}
    if not isinstance(names, list) or len(names) != len(attachments):
        raise ValueError("contents without names")
    if len(names) > FILES_ALONG or sum(map(len, attachments)) > MAX_ALONG:
        raise ValueError("contents that were not to come")
    sizes = {change.path: change.size for change in changed if change.change != "deleted"}
    found = {paths.check_reported(name): content for name, content in zip(names, attachments, strict=True)}
    if len(found) != len(names) or {path: len(content) for path, content in found.items()} != sizes:
        raise ValueError("contents of other files")
    return found


def _optional(value: Any, kind: type) -> Any:
    if value is None or isinstance(value, bool) or not isinstance(value, kind):
        return None
    return str(value)[:2000] if kind is str else value


def _within(value: Any, low: int, high: int) -> int | None:
    return value if type(value) is int and low <= value <= high else None


def _changed(changes: Json) -> Iterable[ChangedFile]:
    kinds: tuple[ChangeKind, ...] = ("created", "modified")
    for kind in kinds:
        for entry in changes.get(kind, ()):
            size, mode, modified_ns = (int(entry[name]) for name in ("size", "mode", "modified_ns"))
            if size < 0 or abs(modified_ns) >= 1 << 63:
                raise ValueError("impossible file size or time")
            yield ChangedFile(paths.check_reported(entry["path"]), kind, size, mode & 0o777, modified_ns)
    for name in changes.get("deleted", ()):
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
