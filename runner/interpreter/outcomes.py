"""Decides how a run ended, from what was observed and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from runner.model import Outcome


@dataclass(frozen=True, slots=True)
class Observed:
    """Facts about the end of a run.

    ``status`` is what the interpreter said (``ok``, ``error``, ``exit``, ``interrupted``) or None when its
    process ended without saying anything; ``exit_code`` and ``signal`` come from waiting for the process;
    ``stopped_by`` is what we did to it; ``oom_kills`` counts processes the kernel ended for want of memory.
    """

    language: str
    status: str | None
    exit_code: int | None
    signal: int | None
    stopped_by: str | None
    oom_kills: int = 0
    sandbox_lost: bool = False


_STOPPED = {"timeout": Outcome.TIMEOUT, "interrupted": Outcome.INTERRUPTED}


def decide(seen: Observed) -> Outcome:
    """The outcome. Memory comes first: it explains every other symptom."""
    if seen.oom_kills > 0:
        return Outcome.OOM
    if seen.status in ("ok", "exit") and not seen.sandbox_lost:
        return Outcome.OK if not seen.exit_code else Outcome.ERROR
    if seen.stopped_by in _STOPPED:
        return _STOPPED[seen.stopped_by]
    if seen.sandbox_lost:
        return Outcome.CRASHED
    if seen.status in ("error", "interrupted"):
        return Outcome.ERROR
    if seen.language == "bash" and seen.signal is None:
        return Outcome.OK if seen.exit_code == 0 else Outcome.ERROR
    return Outcome.CRASHED
