"""Shortened streams: within the budget, whole characters, nothing invented."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from runner.leases.clamp import clamp

MARK = re.compile(r"\n\[… (\d+) bytes left out[^\n]* …\]\n")
TEXTS = st.text(st.sampled_from("ab\n…é\U0001f600"), max_size=400)


@given(TEXTS, st.integers(0, 300))
def test_head_and_tail_and_the_count_of_what_is_missing(text: str, budget: int) -> None:
    short, missing = clamp(text, budget, "stdout.txt")
    size = len(text.encode())
    if size <= budget:
        assert (short, missing) == (text, False)
        return
    assert missing
    [mark] = list(MARK.finditer(short))
    head, tail = short[: mark.start()], short[mark.end() :]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head.encode()) <= budget * 6 // 10
    assert len(tail.encode()) <= budget - budget * 6 // 10
    assert budget - len(head.encode()) - len(tail.encode()) < 8
    assert int(mark[1]) == size - len(head.encode()) - len(tail.encode())
    assert "stdout.txt" in mark[0]


def test_60_and_40_percent() -> None:
    short, _ = clamp("a" * 500 + "b" * 500, 100)
    head, tail = MARK.split(short)[0], MARK.split(short)[2]
    assert (len(head), len(tail)) == (60, 40)


def test_what_was_lost_before_is_counted_and_no_file_is_said_to_be_whole() -> None:
    short, missing = clamp("a" * 200, 100, "stdout.txt", lost=1000)
    assert missing
    assert MARK.search(short)[1] == "1100"  # type: ignore[index]
    assert "whole" not in short
    assert clamp("a", 100, None, lost=5) == ("a", True)
