"""The table of differences in the documentation, the list that leaves tests out, and the tests are one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.columns import COLUMNS
from tests.support.differences import DIFFERENCES

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| `([a-z-]+)` \| (.+) \|$", re.MULTILINE)


def documented() -> dict[str, dict[str, str]]:
    """Rows of the table: what each column does."""
    text = (ROOT / "docs/backends.md").read_text(encoding="utf-8")
    heading = "| row | " + " | ".join(COLUMNS) + " |"
    assert heading in text
    return {row: dict(zip(COLUMNS, cells.split(" | "), strict=True)) for row, cells in ROW.findall(text)}


def test_every_difference_is_a_row_and_every_row_a_difference() -> None:
    assert set(documented()) == set(DIFFERENCES)


@pytest.mark.parametrize("row", DIFFERENCES)
def test_a_row_says_of_which_columns_it_speaks(row: str) -> None:
    """A cell that repeats bubblewrap's says so; the others are where tests differ."""
    cells = documented()[row]
    same = {name for name, cell in cells.items() if cell in ("as bubblewrap", cells["bubblewrap"])}
    assert set(COLUMNS) - same == set(DIFFERENCES[row].columns)


@pytest.mark.parametrize("row", DIFFERENCES)
def test_a_difference_is_one_of_a_test(row: str) -> None:
    """Tests that it leaves out exist; without any, a test asks for it by name."""
    for test in DIFFERENCES[row].tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), test
    asked = [
        path
        for path in (ROOT / "tests").rglob("test_*.py")
        if f'differs("{row}")' in path.read_text(encoding="utf-8") or f'DIFFERENCES["{row}"]' in path.read_text("utf-8")
    ]
    assert asked or DIFFERENCES[row].tests


def test_no_test_skips_for_a_column_without_a_row() -> None:
    """The column decides through the list above and ``differs``, nowhere else."""
    hidden = re.compile(r"skip\(.*(docker-run|runsc)|skipif\(.*(docker|runsc|CHOSEN)")
    found = [path.name for path in (ROOT / "tests").rglob("test_*.py") if hidden.search(path.read_text("utf-8"))]
    assert [name for name in found if name != Path(__file__).name] == []
