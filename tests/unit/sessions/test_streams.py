"""Streams of an answer: within their bytes, whole characters, the notes and the exception always at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runner.conversations.output import StreamText
from runner.conversations.result import RunResult, nothing_ran
from runner.model import InterpreterState, Outcome
from runner.sessions import streams

LIMIT = 1024


def result(outcome: Outcome = Outcome.OK, stderr: str = "", **fields: object) -> RunResult:
    made = nothing_ran("0" * 32, outcome, 1, InterpreterState.KEPT, "")
    text = StreamText(stderr, False, len(stderr.encode()), None)
    return replace(made, stdout=text, stderr=text, **fields)  # type: ignore[arg-type]


def test_short_streams_are_as_they_were() -> None:
    assert streams.stdout(result(stderr="a\n"), LIMIT) == "a\n"
    assert streams.stderr(result(stderr="a\n"), 1000, LIMIT) == "a\n"


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 5000, "文" * 3000, "😀" * 900])
def test_long_streams_keep_both_ends(text: str) -> None:
    shown = streams.stdout(result(stderr=text + "end"), LIMIT)
    assert len(shown.encode()) <= LIMIT
    assert shown.startswith(text[0])
    assert shown.endswith("end\n... [truncated, stdout exceeded 1KB]")
    assert "\ufffd" not in shown


def test_the_limit_of_time_is_told_last_however_long_the_stream() -> None:
    note = "\n[sandbox] execution exceeded 1.500s and was killed"
    for text in ("", "e\n", "x" * 9000):
        shown = streams.stderr(result(Outcome.TIMEOUT, text), 1500, LIMIT)
        assert shown.endswith(note)
        assert len(shown.encode()) <= LIMIT


def test_an_exception_ends_the_stream() -> None:
    failed = result(Outcome.ERROR, "warning", error={"traceback": "Traceback…\nE: x\n"}, exit_code=1)
    assert streams.stderr(failed, 1000, LIMIT) == "warning\nTraceback…\nE: x\n"
    assert streams.stderr(replace(failed, outcome=Outcome.TIMEOUT), 1000, LIMIT).startswith("warning\n[sandbox]")


def test_notes_stand_on_lines_of_their_own() -> None:
    assert streams.stderr(result(), 1000, LIMIT, "one", "", "two") == "[sandbox] one\n[sandbox] two"
    assert streams.stderr(result(stderr="a"), 1000, LIMIT, "one") == "a\n[sandbox] one"
    refused = result(files_error={"code": "quota_exceeded", "detail": "full"})
    assert streams.stderr(refused, 1000, LIMIT) == "[sandbox] full"


@pytest.mark.parametrize(
    ("outcome", "code", "signal", "shown"),
    [
        (Outcome.OK, 0, None, 0),
        (Outcome.ERROR, 124, None, 124),
        (Outcome.ERROR, None, None, 1),
        (Outcome.TIMEOUT, None, 9, 124),
        (Outcome.OOM, None, 9, 137),
        (Outcome.CRASHED, None, 11, 139),
        (Outcome.CRASHED, 3, None, 3),
        (Outcome.INTERRUPTED, None, None, 130),
        (Outcome.LOST, None, None, 1),
    ],
)
def test_exit_codes_are_a_shell_s(outcome: Outcome, code: int | None, signal: int | None, shown: int) -> None:
    assert streams.exit_code(result(outcome, exit_code=code, signal=signal)) == shown
