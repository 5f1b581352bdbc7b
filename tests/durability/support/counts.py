"""How often, and with which seed: ``FOLIOBOX_REPEAT`` multiplies the small counts, ``FOLIOBOX_SEED`` fixes chance."""

from __future__ import annotations

import os
import secrets


def times(small: int) -> int:
    """A count that grows with FOLIOBOX_REPEAT."""
    return small * max(1, int(os.environ.get("FOLIOBOX_REPEAT", "1")))


def limit(small_s: float) -> float:
    """Seconds that a test may take, for pytest's own limit."""
    return times(1) * small_s


def seed() -> int:
    """The seed of this run; told by whoever uses it, so that it can be had again."""
    given = os.environ.get("FOLIOBOX_SEED")
    return int(given) if given else secrets.randbelow(1_000_000)
