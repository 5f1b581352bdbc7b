"""What a sandbox is given to remember for the next start of the service: of which files it holds, and what runs.

It comes back out of a sandbox, so that nothing of it is believed that could reach beyond its own conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Self

from runner.agent.protocol import Json
from runner.model import Language, RunLimits, RunRequest

REASONS: Final = frozenset(
    (
        "restored",
        "reset",
        "idle",
        "evicted",
        "sandbox_lost",
        "interpreter_lost",
        "lost_in_previous_run",
        "network_changed",
    )
)
_MOST_MS: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class RunMark:
    """What is to be known of a run going on, beside what the store has of it. ``oom_kills`` were before it."""

    id: str
    language: Language
    fresh: bool
    timeout_ms: int
    limits: RunLimits
    oom_kills: int

    @classmethod
    def of(cls, execution_id: str, request: RunRequest, oom_kills: int) -> Self:
        """Of a run about to be sent."""
        return cls(execution_id, request.ends_as, request.fresh, request.timeout_ms, request.limits, oom_kills)

    @property
    def request(self) -> RunRequest:
        """What was asked for, without what only its sandbox needs."""
        return RunRequest("", self.language, self.timeout_ms, self.fresh, limits=self.limits)

    def json(self) -> Json:
        """As sent."""
        limits = self.limits
        return {
            "id": self.id,
            "language": self.language,
            "fresh": self.fresh,
            "timeout_ms": self.timeout_ms,
            "limits": [
                limits.output_bytes,
                limits.artifacts,
                limits.artifact_bytes,
                *([1] if limits.unbounded else []),
            ],
            "oom_kills": self.oom_kills,
        }

    @classmethod
    def read(cls, body: Json) -> Self:
        """As it came back. Raises KeyError, TypeError or ValueError for what was never sent."""
        language, limits = body["language"], body["limits"]
        if language not in ("python", "bash") or not isinstance(limits, list) or len(limits) not in (3, 4):
            raise ValueError("not a run")
        output, artifacts, size = (None if one is None else _count(one) for one in limits[:3])
        return cls(
            str(body["id"]),
            language,
            bool(body["fresh"]),
            _count(body["timeout_ms"], _MOST_MS),
            RunLimits(output, artifacts, size, unbounded=len(limits) == 4),
            _count(body["oom_kills"]),
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """``version`` -1: the files are those of no version. ``variables``: whether there were any; if not, ``reason``
    says why they were lost.
    """

    version: int
    draft_seq: int
    variables: bool = False
    reason: str | None = None
    run: RunMark | None = field(default=None)

    def json(self) -> Json:
        """As sent."""
        return {
            "version": self.version,
            "draft_seq": self.draft_seq,
            "variables": self.variables,
            "reason": self.reason,
            "run": None if self.run is None else self.run.json(),
        }

    @classmethod
    def read(cls, body: object) -> Self | None:
        """As it came back; None for what was never sent."""
        if not isinstance(body, dict):
            return None
        try:
            run, reason = body["run"], body["reason"]
            version = body["version"]
            return cls(
                version if version == -1 else _count(version),
                _count(body["draft_seq"]),
                bool(body["variables"]),
                reason if isinstance(reason, str) and reason in REASONS else None,
                None if run is None else RunMark.read(run),
            )
        except (KeyError, TypeError, ValueError):
            return None


def _count(value: Any, most: int = 1 << 53) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("not a count")
    return value
