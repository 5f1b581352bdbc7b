"""What ``foliobox egress check`` makes of answers, which come out of a sandbox and may be anything."""

from __future__ import annotations

import json

import pytest

from runner.cli.egress_attempts import Attempt, judge, plan

OPEN, DENIED, DIRECT = (
    Attempt("allowed host", "tunnel", "a.example", open=True),
    Attempt("denied host", "get", "b.example"),
    Attempt("direct", "tcp", "192.0.2.1:80"),
)


def right(attempt: Attempt, state: str) -> bool:
    return judge([attempt], json.dumps([[state, "why"]]))[0].right


def test_what_must_be_open_is_open_and_nothing_else() -> None:
    assert [right(OPEN, state) for state in ("open", "refused", "closed")] == [True, False, False]


def test_through_the_proxy_only_its_own_word_counts_as_closed() -> None:
    """Any other answer, an error of the proxy's too, means that it had tried; silence proves nothing."""
    assert [right(DENIED, state) for state in ("open", "refused", "closed")] == [False, True, False]


def test_past_the_proxy_nothing_may_answer() -> None:
    assert [right(DIRECT, state) for state in ("open", "closed")] == [False, True]


@pytest.mark.parametrize(
    "said", ["", "[]", "{}", '[["open"]]', '[["fine", ""]]', "[1]", '[["open", ""], ["open", ""]]', "no"]
)
def test_what_is_no_answer_is_refused(said: str) -> None:
    with pytest.raises(ValueError):
        judge([OPEN], said)


def test_words_of_a_sandbox_are_cut_and_cannot_move_the_cursor() -> None:
    row = judge([OPEN], json.dumps([["open", "\x1b[2Jx" * 500]]))[0]
    assert len(row.detail) <= 200
    assert "\x1b" not in row.detail


def test_a_sandbox_without_network_tries_what_one_with_it_tries_directly() -> None:
    attempts = plan(["a.example"], ["b.example"], ["10.0.0.1"], ["192.0.2.1:80"], ["192.0.2.1"])
    without = {(one.way, one.target) for one in attempts if not one.network}
    assert without == {("tcp", "192.0.2.1:80"), ("dns", "192.0.2.1"), ("lookup", "b.example"), ("proxy", "")}
    assert [one.name for one in attempts if one.open] == ["proxy variables", "allowed host"]
