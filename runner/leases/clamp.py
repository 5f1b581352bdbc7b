"""Shortens an output stream to a budget: head and tail stay, a line between them says what is missing."""

from __future__ import annotations

from typing import Final

SAVED_ABOVE: Final = 32 << 10  # bytes; a longer stream is a file too
_MARK: Final = "\n[… {count} bytes left out{where} …]\n"


def clamp(text: str, budget: int, saved_as: str | None = None, lost: int = 0) -> tuple[str, bool]:
    """``text`` in at most ``budget`` bytes of UTF-8 and the mark, 60 % of its head and 40 % of its tail; and whether
    anything is missing. ``lost``: bytes of the stream that ``text`` itself lacks.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= budget:
        return text, lost > 0
    head = data[: budget * 6 // 10].decode("utf-8", "ignore")
    tail = _whole_from(data[len(data) - (budget - budget * 6 // 10) :])
    count = len(data) - len(head.encode()) - len(tail.encode()) + lost
    where = f"; the whole stream is the file {saved_as}" if saved_as and not lost else ""
    where = f"; more of the stream is in the file {saved_as}" if saved_as and lost else where
    return head + _MARK.format(count=count, where=where) + tail, True


def _whole_from(data: bytes) -> str:
    """From the first whole character on."""
    start = 0
    while start < min(4, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode("utf-8", "replace")
