"""From the service's nouns to the bodies of ``/v1``; no policy."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from runner.api.encoding import encode
from runner.conversations.conversation import Conversation
from runner.conversations.result import Artifact, RunEvent, RunResult, media_type
from runner.model import FileEntry


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
        "files_error": result.files_error,
        "skipped": result.skipped,
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


def failure(code: str, detail: str, execution_id: str, request_id: str) -> bytes:
    """The last server-sent event of a stream that ends without ``done``."""
    data = {"execution_id": execution_id, "code": code, "detail": detail, "request_id": request_id}
    return b"event: error\ndata: %s\n\n" % encode(data, (", ", ": "))


def file(entry: FileEntry) -> dict[str, Any]:
    """A file of a workspace."""
    modified = datetime.fromtimestamp(max(0, entry.modified_ns) // 1_000_000_000, UTC)
    return {
        "path": entry.path,
        "size": entry.size,
        "sha256": entry.sha256,
        "media_type": media_type(entry.path),
        "modified_at": modified.isoformat().replace("+00:00", "Z"),
    }


def conversation(item: Conversation, labels: dict[str, str]) -> dict[str, Any]:
    """A conversation."""
    return {
        "id": item.workspace.id,
        "labels": labels,
        "version": item.workspace.version,
        "files": len(item.workspace.files),
        "size_bytes": item.workspace.size_bytes,
        "live": item.alive,
    }


def content_disposition(path: str) -> str:
    """A download name that every client understands: ASCII, and the real one in UTF-8 (RFC 6266, RFC 8187)."""
    name = path.rpartition("/")[2]
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\%' else "_" for c in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
