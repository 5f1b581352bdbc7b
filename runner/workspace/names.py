"""Paths in order: what lies below a folder, and pages of them, without a look at all. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Self

_RUN: Final = 2048  # sorting more at once would keep other threads waiting: it is one step of the interpreter


class Names:
    """A sorted set of canonical paths. Below a folder is one stretch of it: from ``folder/`` to ``folder0``."""

    def __init__(self, paths: Iterable[str] = ()) -> None:
        self._sorted = ordered(paths)

    def __len__(self) -> int:
        return len(self._sorted)

    def add(self, path: str) -> None:
        """Take in a path that is not there."""
        insort(self._sorted, path)

    def remove(self, path: str) -> None:
        """Drop a path that is there."""
        del self._sorted[bisect_left(self._sorted, path)]

    def any_below(self, folder: str) -> bool:
        """Whether a path lies below a folder."""
        start = folder + "/"
        at = bisect_left(self._sorted, start)
        return at < len(self._sorted) and self._sorted[at].startswith(start)

    def below(self, folder: str) -> list[str]:
        """The paths below a folder, in order."""
        start, stop = self._stretch(folder)
        return self._sorted[start:stop]

    def count_below(self, folder: str) -> int:
        """How many they are."""
        start, stop = self._stretch(folder)
        return stop - start

    def _stretch(self, folder: str) -> tuple[int, int]:
        return bisect_left(self._sorted, folder + "/"), bisect_left(self._sorted, folder + "0")

    def after(self, prefix: str, last: str | None) -> Iterator[str]:
        """Those that begin with ``prefix`` and come behind ``last``, in order. Others may not change it meanwhile."""
        at = bisect_left(self._sorted, prefix)
        if last is not None:
            at = max(at, bisect_right(self._sorted, last))
        for path in islice(self._sorted, at, None):
            if not path.startswith(prefix):
                return
            yield path

    def copy(self) -> Self:
        """An independent one."""
        twin = type(self)()
        twin._sorted = self._sorted.copy()
        return twin


def ordered(paths: Iterable[str]) -> list[str]:
    """``sorted`` in steps between which other threads get their turn."""
    found = list(paths)
    if len(found) > _RUN:
        found = [path for at in range(0, len(found), _RUN) for path in sorted(found[at : at + _RUN])]
    found.sort()  # merges what is in order already
    return found
