"""Percentiles and samples, against values worked out by hand and by another library."""

from __future__ import annotations

import statistics

import pytest

from bench.stats import Sample, percentile, repeat


def test_percentiles_interpolate_between_ranks() -> None:
    assert percentile((4.0, 1.0, 3.0, 2.0), 50) == 2.5
    assert percentile((1.0, 2.0), 95) == pytest.approx(1.95)
    assert percentile((7.0,), 95) == 7.0


def test_percentiles_agree_with_the_standard_library() -> None:
    values = tuple(float((i * 37) % 101) for i in range(60))
    expected = statistics.quantiles(values, n=100, method="inclusive")
    assert [percentile(values, p) for p in (1, 50, 95, 99)] == pytest.approx([expected[p - 1] for p in (1, 50, 95, 99)])


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        percentile((), 50)


def test_repeat_leaves_the_warm_up_out() -> None:
    calls: list[int] = []
    sample = repeat(lambda: calls.append(1), 3, warm_up=2)
    assert (sample.n, len(calls)) == (3, 5)
    assert 0 <= sample.least <= sample.p50 <= sample.p95


def test_a_sample_keeps_its_note() -> None:
    assert Sample((1.0,), "why").note == "why"
