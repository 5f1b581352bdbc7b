"""From the one-shot protocol to a run, and from an answer to its JSON, piece by piece."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from runner.api.base64_stream import encoded
from runner.api.encoding import encode
from runner.api.oneshot import schemas
from runner.errors import InvalidRequest
from runner.leases.nouns import Answer, Ask, Item
from runner.workspace.paths import MAX_SEGMENT_BYTES, is_canonical

_REFUSED: Final = 2
_END: Final = b'"}'


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request that is well formed and cannot be run: answered like a run that ended with 2."""

    text: str

    def body(self, container_id: str | None = None) -> bytes:
        """The whole answer."""
        fields = _fields(_REFUSED, "", f"sandbox-agent: {self.text}\n", 0)
        return encode({**fields, "container_id": container_id, "artifacts": []})


def ask_of(body: bytes) -> Ask | Refusal:
    """A run from a request's body. Raises InvalidRequest for what is no ``RunRequest``."""
    try:
        given = schemas.RunRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"])) or "the body"
        raise InvalidRequest(f"this is not a RunRequest: {place}: {first['msg']}"[:500]) from None
    except ValueError as error:
        raise InvalidRequest(f"this is not JSON: {error}"[:500]) from None
    files: dict[str, bytes] = {}
    for file in given.files:
        if not safe_name(file.name):
            return Refusal(
                f"unsafe input name {file.name[:200]!r}: it must be one path component of at most "
                f"{MAX_SEGMENT_BYTES} bytes"
            )
        try:
            files[file.name] = base64.b64decode(file.content_b64)
        except (binascii.Error, ValueError) as error:
            return Refusal(f"content_b64 of {file.name[:200]!r} cannot be decoded: {error}")
    return Ask(
        given.language,
        given.code,
        files,
        given.timeout_secs,
        given.network,
        given.container_id,
        given.keep_alive,
    )


def safe_name(name: str) -> bool:
    """Whether a name is one path component, and one that a file can have."""
    return is_canonical(name) and "/" not in name and "\\" not in name


def size_of(answer: Answer) -> int:
    """Bytes of ``pieces``."""
    lengths = (len(_head(item, at)) + 4 * ((item.size + 2) // 3) + len(_END) for at, item in enumerate(answer.items))
    return len(_start(answer)) + sum(lengths) + 2


async def pieces(answer: Answer) -> AsyncIterator[bytes]:
    """The JSON of an answer; file contents are encoded as they are read. Raises StoreFailed."""
    yield _start(answer)
    for at, item in enumerate(answer.items):
        yield _head(item, at)
        async for piece in encoded(answer.content(item)):
            yield piece
        yield _END
    yield b"]}"


def _start(answer: Answer) -> bytes:
    fields = _fields(answer.exit_code, answer.stdout, answer.stderr, answer.duration_ms)
    fields |= {
        "timed_out": answer.timed_out,
        "output_truncated": answer.output_truncated,
        "artifacts_truncated": answer.artifacts_truncated,
        "container_id": answer.lease,
    }
    more = {"empty_files": answer.empty_files, "skipped_files": answer.skipped_files, "notes": answer.notes}
    fields |= {name: value for name, value in more.items() if value}
    return encode(fields)[:-1] + b',"artifacts":['


def _fields(exit_code: int, stdout: str, stderr: str, duration_ms: int) -> dict[str, Any]:
    return {
        "exit_code": exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "duration_ms": duration_ms,
        "timed_out": False,
        "output_truncated": False,
        "artifacts_truncated": False,
    }


def _head(item: Item, at: int) -> bytes:
    path = {} if item.path == item.name else {"path": item.path}
    fields = {"name": item.name, **path, "size": item.size, "mime": item.mime}
    return (b"," if at else b"") + encode(fields)[:-1] + b',"content_b64":"'
