"""Every combination of facts has exactly the outcome that the rules below give."""

from __future__ import annotations

import itertools

import pytest

from runner.interpreter.outcomes import Observed, decide
from runner.model import Outcome

LANGUAGES = ("python", "bash")
STATUSES = (None, "ok", "error", "exit", "interrupted", "nonsense")
CODES = (None, 0, 1, 255)
SIGNALS = (None, 9, 11)
STOPPED = (None, "timeout", "interrupted", "nonsense")
KILLS = (0, 1)
LOST = (False, True)
ALL = [Observed(*facts) for facts in itertools.product(LANGUAGES, STATUSES, CODES, SIGNALS, STOPPED, KILLS, LOST)]


def test_memory_explains_everything() -> None:
    assert {decide(seen) for seen in ALL if seen.oom_kills} == {Outcome.OOM}


def test_without_a_kill_for_memory_it_is_never_oom_and_never_lost() -> None:
    assert {decide(seen) for seen in ALL if not seen.oom_kills} == set(Outcome) - {Outcome.OOM, Outcome.LOST}


@pytest.mark.parametrize(("reason", "outcome"), [("timeout", Outcome.TIMEOUT), ("interrupted", Outcome.INTERRUPTED)])
def test_what_we_stopped_says_so_unless_it_had_come_to_its_end(reason: str, outcome: Outcome) -> None:
    for seen in ALL:
        if seen.stopped_by != reason or seen.oom_kills:
            continue
        finished = seen.status in ("ok", "exit") and not seen.sandbox_lost
        assert (decide(seen) is outcome) is not finished, seen


def test_a_lost_sandbox_is_a_crash_unless_we_stopped_the_run() -> None:
    chosen = [s for s in ALL if s.sandbox_lost and not s.oom_kills and s.stopped_by not in ("timeout", "interrupted")]
    assert {decide(seen) for seen in chosen} == {Outcome.CRASHED}


def test_what_the_interpreter_said_counts_when_nothing_else_happened() -> None:
    for seen in ALL:
        if seen.oom_kills or seen.sandbox_lost or seen.stopped_by in ("timeout", "interrupted"):
            continue
        if seen.status in ("ok", "exit"):
            assert decide(seen) is (Outcome.ERROR if seen.exit_code else Outcome.OK)
        elif seen.status in ("error", "interrupted"):
            assert decide(seen) is Outcome.ERROR
        elif seen.language == "bash" and seen.signal is None:
            assert decide(seen) is (Outcome.OK if seen.exit_code == 0 else Outcome.ERROR)
        else:
            assert decide(seen) is Outcome.CRASHED
