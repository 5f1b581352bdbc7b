"""Settings of the conversation service: pool, cap, idle time, graceful stop."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from runner import environment

MAX_SANDBOXES: Final = 10_000
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class ConversationsConfig:
    """``max_live`` counts sandboxes, spares included."""

    pool_size: int = 2
    max_live: int = 8
    idle_ttl_s: float = 1800.0
    ready_timeout_s: float = 60.0
    stop_grace_s: float = 10.0
    keep_on_stop: bool = True

    @classmethod
    def from_env(cls, env: environment.Env) -> ConversationsConfig:
        """``SANDBOX_POOL_SIZE``, ``SANDBOX_MAX_SESSIONS`` (default (RAM − 2 GiB) / 1 GiB, at least 2; 0: that
        default too), ``SANDBOX_IDLE_TTL_SECONDS``, ``SANDBOX_STOP_GRACE_SECONDS``, ``SANDBOX_KEEP_ON_STOP``.
        """
        return cls(
            pool_size=environment.integer(env, "SANDBOX_POOL_SIZE", 2, maximum=MAX_SANDBOXES),
            max_live=environment.integer(env, "SANDBOX_MAX_SESSIONS", 0, maximum=MAX_SANDBOXES) or _default_live(),
            idle_ttl_s=environment.number(env, "SANDBOX_IDLE_TTL_SECONDS", 1800.0, minimum=1.0),
            stop_grace_s=environment.number(env, "SANDBOX_STOP_GRACE_SECONDS", 10.0),
            keep_on_stop=environment.switch(env, "SANDBOX_KEEP_ON_STOP", True),
        )

    @property
    def spares(self) -> int:
        """How many sandboxes are kept warm: as many as were asked for, at most as many as there may be."""
        return min(self.pool_size, self.max_live)


def _default_live() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(2, (total - 2 * _GIB) // _GIB)
