"""How many connections all sandboxes have to the proxy together, and who gives one up when there are no more. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class Held:
    """A connection: whose it is, when something moved last, and what cuts it."""

    owner: object
    moved: float
    cut: Callable[[], object]


class Share:
    """Room for ``most``. Owners that have many cannot keep one out that has few, however busy theirs are."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._held: dict[object, set[Held]] = {}

    def take(self, owner: object, now: float, cut: Callable[[], object]) -> Held | None:
        """Room for one more. Where all is taken whoever has most loses what was idle longest, unless the one who asks
        would have as many then: that is None.
        """
        if self._count >= self._most and not self._make_room(len(self._held.get(owner, ()))):
            return None
        one = Held(owner, now, cut)
        self._held.setdefault(owner, set()).add(one)
        self._count += 1
        return one

    def give_back(self, one: Held) -> None:
        """It has ended; also when it was cut before."""
        held = self._held.get(one.owner, set())
        if one in held:
            held.remove(one)
            self._count -= 1
        if not held:
            self._held.pop(one.owner, None)

    def _make_room(self, own: int) -> bool:
        most = max(self._held.values(), key=len)
        if len(most) < own + 2:
            return False
        longest = min(most, key=lambda one: one.moved)
        self.give_back(longest)
        longest.cut()
        return True
