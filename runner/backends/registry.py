"""Names the backends and chooses one; only the composition root asks."""

from __future__ import annotations

from runner.backends.base import Backend
from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.config import BubblewrapConfig


def create(name: str, bubblewrap: BubblewrapConfig, allow_unisolated: bool) -> Backend:
    """The backend called ``name``; ``auto`` never means one without isolation. Raises ConfigurationError."""
    return BubblewrapBackend(bubblewrap)
