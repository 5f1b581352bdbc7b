"""Whether the service itself fetches from the web, and its limits."""

from __future__ import annotations

from dataclasses import dataclass

from runner import environment


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Sizes in bytes, times in seconds. ``total_s`` is for a whole fetch with its redirects; ``requests`` are those of
    one chain; ``at_once`` are fetches of all callers together, ``at_once_each`` those of one.
    """

    enabled: bool = False
    image_bytes: int = 32 << 20
    file_bytes: int = 32 << 20
    text_bytes: int = 4 << 20
    connect_s: float = 10.0
    silence_s: float = 10.0
    total_s: float = 40.0
    requests: int = 5
    at_once: int = 16
    at_once_each: int = 4

    @classmethod
    def from_env(cls, env: environment.Env) -> FetchConfig:
        """``SANDBOX_FETCH``: on or off; the limits are fixed."""
        return cls(enabled=environment.switch(env, "SANDBOX_FETCH"))
