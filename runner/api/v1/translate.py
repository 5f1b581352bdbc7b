"""From the service's nouns to the bodies of ``/v1``; no policy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from runner.api.encoding import encode
from runner.conversations.listing import Description, Item
from runner.conversations.result import Artifact, RunEvent, RunResult, media_type
from runner.conversations.runs import Running
from runner.model import FileChange, FileEntry
from runner.workspace.manifest import VersionInfo


def run(result: RunResult) -> dict[str, Any]:
    """A run's result."""
    return {
        "execution_id": result.execution_id,
        "outcome": result.outcome.value,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "duration_ms": result.duration_ms,
        "peak_memory_bytes": result.peak_memory_bytes,
        "stdout": result.stdout.text,
        "stderr": result.stderr.text,
        "stdout_truncated": result.stdout.truncated,
        "stderr_truncated": result.stderr.truncated,
        "stdout_bytes": result.stdout.total,
        "stderr_bytes": result.stderr.total,
        "results": result.results,
        "results_dropped": result.results_dropped,
        "error": result.error,
        "interpreter": result.interpreter.value,
        "interpreter_reason": result.interpreter_reason,
        "version": result.version,
        "files": [artifact(item) for item in result.files],
        "files_dropped": result.files_dropped,
        "files_error": result.files_error,
        "skipped": result.skipped,
        "record_error": result.record_error,
    }


def artifact(item: Artifact) -> dict[str, Any]:
    """A file that a run touched."""
    body: dict[str, Any] = {"path": item.path, "change": item.change}
    if item.entry is not None:
        body |= {
            "size": item.entry.size,
            "sha256": item.entry.sha256,
            "media_type": item.media_type,
            "kind": item.kind,
            "findings": [],
        }
    if item.renamed_from is not None:
        body["renamed_from"] = item.renamed_from
    return body


def event(item: RunEvent, execution_id: str) -> bytes:
    """One server-sent event."""
    data: dict[str, Any] = {"execution_id": execution_id, "seq": item.seq, **item.data}
    if item.artifact is not None:
        data["file"] = artifact(item.artifact)
    if item.result is not None:
        data["result"] = run(item.result)
    return b"event: %s\nid: %d\ndata: %s\n\n" % (item.kind.encode(), item.seq, encode(data, (", ", ": ")))


def execution(running: Running) -> dict[str, Any]:
    """A run that waits, runs or has ended."""
    result = running.log.ended_with
    status = "ended" if result is not None else "running" if running.began else "waiting"
    return {
        "execution_id": running.execution_id,
        "status": status,
        "events": running.log.seq,
        "result": None if result is None else run(result),
    }


def failure(code: str, detail: str, execution_id: str, request_id: str, **fields: Any) -> bytes:
    """The last server-sent event of a stream that ends without ``done``."""
    data = {"execution_id": execution_id, "code": code, "detail": detail, "request_id": request_id, **fields}
    return b"event: error\ndata: %s\n\n" % encode(data, (", ", ": "))


def file(entry: FileEntry) -> dict[str, Any]:
    """A file of a workspace."""
    modified = datetime.fromtimestamp(max(0, entry.modified_ns) // 1_000_000_000, UTC)
    return {
        "path": entry.path,
        "type": "file",
        "size": entry.size,
        "sha256": entry.sha256,
        "media_type": media_type(entry.path),
        "modified_at": modified.isoformat().replace("+00:00", "Z"),
    }


def conversation(item: Description) -> dict[str, Any]:
    """A conversation with the settings that hold for it."""
    return {
        "id": item.id,
        "labels": dict(item.labels),
        "version": item.version,
        "files": item.files,
        "size_bytes": item.size_bytes,
        "live": item.live,
        "idle_ttl_ms": item.idle_ttl_ms,
        "limits": dict(item.limits),
        "limits_apply": item.limits_apply,
        "network": item.network,
    }


def item(found: Item) -> dict[str, Any]:
    """A conversation in a list."""
    return {"id": found.id, "labels": dict(found.labels)}


def link(path: str, target: str) -> dict[str, Any]:
    """A symbolic link of a workspace."""
    return {"path": path, "type": "link", "target": target}


def version(info: VersionInfo) -> dict[str, Any]:
    """A version."""
    cause = info.cause
    return {
        "version": info.version,
        "base": info.base,
        "created_at": info.created_at,
        "cause": {
            "kind": cause.kind,
            "execution_id": cause.execution_id,
            "version": cause.version,
            "conversation": cause.source,
        },
        "changes": {name: getattr(info.changes, name) for name in ("created", "modified", "deleted")},
        "file_count": info.file_count,
        "size_bytes": info.size_bytes,
    }


def change(item: FileChange) -> dict[str, Any]:
    """A file that a version changed."""
    body: dict[str, Any] = {"path": item.path, "change": item.change}
    if item.entry is not None:
        body |= {"size": item.entry.size, "sha256": item.entry.sha256, "media_type": media_type(item.path)}
    return body


def content_disposition(path: str, kind: str = "attachment") -> str:
    """A download name that every client understands: ASCII, and the real one in UTF-8 (RFC 6266, RFC 8187)."""
    name = path.rpartition("/")[2]
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\%' else "_" for c in name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
