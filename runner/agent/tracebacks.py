"""Turns an exception into name, message, line and a traceback without our frames, whatever its methods do."""

from __future__ import annotations

import traceback
from typing import Any

MAX_TRACEBACK = 64 << 10
MAX_MESSAGE = 8 << 10
_MAX_CHAIN = 200


def describe_error(error: BaseException) -> dict[str, Any]:
    """Name, message, line in the cell, and a traceback without any frame of ours or of IPython."""
    name = type(error).__name__[:200]
    try:
        message = str(error)[:MAX_MESSAGE]
    except BaseException as failure:
        message = f"<str() of the exception failed: {type(failure).__name__}>"
    try:
        line, text = _traceback(error)
    except BaseException as failure:
        line, text = None, f"{name}: {message}\n<no traceback: {type(failure).__name__}>\n"
    if len(text) > MAX_TRACEBACK:
        text = text[: MAX_TRACEBACK // 2] + "\n… traceback shortened …\n" + text[-MAX_TRACEBACK // 2 :]
    return {"name": name, "message": message, "traceback": text, "line": line}


def _traceback(error: BaseException) -> tuple[int | None, str]:
    summary = traceback.TracebackException.from_exception(
        error, capture_locals=False, compact=True, max_group_width=50, max_group_depth=10
    )
    todo: list[Any] = [summary]
    seen = 0
    while todo and seen < _MAX_CHAIN:
        item = todo.pop()
        seen += 1
        item.stack = traceback.StackSummary.from_list([f for f in item.stack if not _is_ours(f.filename)])
        todo += [n for n in (item.__cause__, item.__context__, *(item.exceptions or [])) if n is not None]
    for item in todo:
        item.__cause__ = item.__context__ = None
    cells = [frame.lineno for frame in summary.stack if frame.filename.startswith("<cell ")]
    line = cells[-1] if cells else None
    if isinstance(error, SyntaxError) and str(error.filename).startswith("<cell "):
        line = error.lineno if isinstance(error.lineno, int) else None
    return line, "".join(summary.format())


def _is_ours(filename: str) -> bool:
    return filename.startswith("<foliobox_agent") or "/IPython/" in filename
