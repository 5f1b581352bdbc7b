"""The tables of weaknesses and traps are whole, and each test that they name is there."""

from __future__ import annotations

import pytest

from tests.conformance.beaten import Row, collected, unproven
from tests.conformance.traps import TRAPS
from tests.conformance.weaknesses import WEAKNESSES


@pytest.fixture(scope="module")
def found() -> set[str]:
    """Tests that are there, among those that both tables name."""
    return collected(test for row in (*WEAKNESSES, *TRAPS) for test in row.tests)


def test_all_73_weaknesses_are_there_once_and_proven(found: set[str]) -> None:
    assert [row.number for row in WEAKNESSES] == list(range(1, 74))
    assert unproven(WEAKNESSES, found) == []


def test_all_16_traps_are_there_once_and_proven(found: set[str]) -> None:
    assert [row.number for row in TRAPS] == list(range(1, 17))
    assert unproven(TRAPS, found) == []


def test_control_a_row_with_a_test_that_is_not_there_is_told() -> None:
    here = "tests/conformance/test_tables.py"
    rows = [
        Row(1, "there", (f"{here}::test_all_16_traps_are_there_once_and_proven",)),
        Row(2, "gone", (f"{here}::test_that_nobody_wrote",)),
        Row(3, "no file", ("tests/nowhere/test_nothing.py::test_nothing",)),
        Row(4, "nothing"),
        Row(5, "both", (f"{here}::test_all_16_traps_are_there_once_and_proven",), "and a reason"),
    ]
    assert [
        line.partition(":")[0] for line in unproven(rows, collected(test for row in rows for test in row.tests))
    ] == ["2", "3", "4", "5"]
