"""Lines of a long stream, by number, without taking it apart: what ends at a newline, and nothing else, is a line."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

_BLOCK: Final = 1 << 10  # where the newlines before it are known; lines are counted from there


@dataclass(frozen=True, slots=True)
class Shown:
    """``count`` lines as text; ``cut``: the last of them is not whole."""

    count: int
    text: str
    cut: bool


class Lines:
    """Counts once, then finds any line soon. A carriage return before a newline is no part of the line."""

    def __init__(self, content: bytes) -> None:
        starts = range(0, len(content), _BLOCK)
        self._content = content
        self._newlines = list(accumulate(content.count(b"\n", at, at + _BLOCK) for at in starts))
        whole = self._newlines[-1] if self._newlines else 0
        self.total = whole + (content != b"" and not content.endswith(b"\n"))

    def shown(self, numbers: Iterable[int], most: int) -> Shown:
        """Lines with their numbers, in ``most`` bytes of UTF-8; the first one is cut where it has more alone.

        Numbers that are none of a line are left out.
        """
        shown: list[str] = []
        room, last, after = most, 0, 0
        for number in numbers:
            if not 1 <= number <= self.total:
                continue
            start = after if number == last + 1 else self._start(number)
            end = self._content.find(b"\n", start)
            end = len(self._content) if end < 0 else end
            line, whole = self._line(number, start, end, most)
            size = len(line.encode()) + bool(shown)
            if not whole or size > room:
                if shown:
                    break
                return Shown(1, _cut(line, end - start, most), True)
            shown.append(line)
            room, last, after = room - size, number, end + 1
        return Shown(len(shown), "\n".join(shown), False)

    def _start(self, number: int) -> int:
        """Where a line begins: behind the newline before it."""
        wanted = number - 1
        if not wanted:
            return 0
        block = bisect_left(self._newlines, wanted)
        at = block * _BLOCK
        for _ in range(wanted - (self._newlines[block - 1] if block else 0)):
            at = self._content.find(b"\n", at) + 1
        return at

    def _line(self, number: int, start: int, end: int, most: int) -> tuple[str, bool]:
        """With its number; only the beginning, and False, where it is longer than all that may be shown."""
        raw = self._content[start : min(end, start + most)]
        whole = len(raw) == end - start
        if whole:
            raw = raw.removesuffix(b"\r")
        return f"{number}: {raw.decode('utf-8', 'replace')}", whole


def _cut(line: str, size: int, most: int) -> str:
    mark = f" … [cut: this line has {size} bytes]"
    return line.encode()[: most - len(mark.encode())].decode("utf-8", "ignore") + mark
