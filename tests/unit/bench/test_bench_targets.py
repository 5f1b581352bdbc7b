"""The table of rows: it is whole, and its verdicts are right on both sides of a target."""

from __future__ import annotations

import pytest

from bench.measures import MEASURES
from bench.stats import Sample
from bench.targets import BY_KEY, ROWS, Row


def test_every_row_is_measured_and_every_measure_has_a_row() -> None:
    assert set(MEASURES) == set(BY_KEY)
    assert len(BY_KEY) == len(ROWS)


def test_rows_are_compared_with_floors_and_peers_without_a_target() -> None:
    for row in ROWS:
        if row.against is not None:
            assert row.against in BY_KEY
        if row.faster:
            assert row.against is not None


@pytest.mark.parametrize(
    ("row", "values", "expected"),
    [
        (Row("a", "A"), (5.0,), "-"),
        (Row("a", "A", 3), (3.0,), "ok"),
        (Row("a", "A", 3), (3.1,), "over"),
        (Row("a", "A", 3), (1.0, 1.0, 99.0), "ok"),
        (Row("a", "A", 3, "p95"), (1.0, 1.0, 99.0), "over"),
        (Row("a", "A", 400, at_least=True), (399.0,), "over"),
        (Row("a", "A", 400, at_least=True), (401.0,), "ok"),
    ],
)
def test_verdict(row: Row, values: tuple[float, ...], expected: str) -> None:
    assert row.verdict(Sample(values), None) == expected


def test_a_row_that_must_be_faster_is_over_when_it_is_not() -> None:
    row = Row("a", "A", 3, against="b", faster=True)
    assert row.verdict(Sample((2.0,)), Sample((2.5,))) == "ok"
    assert row.verdict(Sample((2.0,)), Sample((1.5,))) == "over"
    assert row.ratio(Sample((2.0,)), Sample((4.0,))) == 0.5


def test_targets_read_as_words() -> None:
    assert Row("a", "A", 3, against="b", faster=True).target == "p50 ≤ 3, < b"
    assert Row("a", "A", 400, at_least=True).target == "p50 ≥ 400"
    assert Row("a", "A").target == ""


def test_a_row_may_be_at_most_so_many_times_another() -> None:
    row = Row("a", "A", None, "p95", against="b", most_times=2)
    assert row.target == "p95 ≤ 2 × b"
    assert row.verdict(Sample((4.0,)), Sample((2.0,))) == "ok"
    assert row.verdict(Sample((1.0, 1.0, 90.0)), Sample((2.0,))) == "over"
