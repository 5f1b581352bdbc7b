"""A row of the table of tiers counts as passed only when something ran, in time, and nothing was left out unasked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import rows
from tests.support.rows import Outcome, Row

ROW = Row("e2e", "docker-runc", 100)
ROOT_ONLY = ["test_a (needs root: reads /proc)"]


@pytest.mark.parametrize(
    ("outcome", "strict", "root", "problem"),
    [
        (Outcome(ROW, passed=3, seconds=99), True, True, ""),
        (Outcome(ROW, passed=3, failed=1), False, True, "1 failed"),
        (Outcome(ROW), False, True, "no test ran"),
        (Outcome(ROW, passed=3, seconds=101), False, True, "over its budget of 100 s"),
        (Outcome(ROW, passed=3, skipped=["test_b (no strace)"]), False, True, ""),
        (Outcome(ROW, passed=3, skipped=["test_b (no strace)"]), True, True, "skipped: test_b (no strace)"),
        (Outcome(ROW, skipped=ROOT_ONLY), False, False, ""),
        (Outcome(ROW, skipped=ROOT_ONLY), False, True, "no test ran"),
        (Outcome(ROW, skipped=ROOT_ONLY), True, False, "no test ran"),
        (Outcome(ROW, skipped=[*ROOT_ONLY, "test_c (no proot)"]), False, False, "no test ran"),
        (Outcome(ROW, failed=1, skipped=ROOT_ONLY), False, False, "1 failed"),
        (Outcome(ROW, without="no engine"), False, True, ""),
        (Outcome(ROW, without="no engine"), True, True, "its column is not there"),
    ],
)
def test_verdicts(outcome: Outcome, strict: bool, root: bool, problem: str) -> None:
    found = outcome.problems(strict, root)
    assert found[:1] == ([problem] if problem else [])


def test_the_line_says_why_nothing_ran() -> None:
    line = Outcome(ROW, without="only root can start one").line([])
    assert line.startswith("e2e@docker-runc ") and line.endswith("left out: only root can start one")
    assert Outcome(ROW, passed=1).line([]).endswith("  ok")


def test_a_row_asks_pytest_for_its_column() -> None:
    assert "--column=docker-runc" in ROW.command(Path("report.xml"))
    assert not [word for word in Row("unit", "", 1).command(Path("r")) if word.startswith("--column")]


def test_counts_are_read_from_the_report_of_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "test_three.py"
    file.write_text(
        "import pytest\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert False\n"
        "def test_is_skipped(): pytest.skip('nothing to do it with')\n"
    )

    commands_of(file, monkeypatch)
    outcome = rows.run(Row("three", "", 60), {})
    assert (outcome.passed, outcome.failed, outcome.unsteady) == (1, 1, [])
    assert outcome.skipped == ["test_is_skipped (nothing to do it with)"]


@pytest.mark.parametrize(("faults", "passed", "failed"), [(1, 5, 0), (3, 5, 0), (4, 1, 4)])
def test_a_few_that_fail_are_run_once_more_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: int, passed: int, failed: int
) -> None:
    file = tmp_path / "test_five.py"
    file.write_text(
        "import pathlib, pytest\n"
        "@pytest.mark.parametrize('number', range(5))\n"
        "def test_one(number):\n"
        f"    mark = pathlib.Path({str(tmp_path)!r}) / str(number)\n"
        f"    first = number < {faults} and not mark.exists()\n"
        "    mark.touch()\n"
        "    assert not first\n"
    )
    commands_of(file, monkeypatch)
    outcome = rows.run(Row("five", "", 60), {})
    assert (outcome.passed, outcome.failed) == (passed, failed)
    assert outcome.unsteady == ([] if failed else [f"test_one[{number}]" for number in range(faults)])
    assert failed or "unsteady: test_one[0]" in outcome.line([])


def commands_of(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows run one file."""
    whole = Row.command

    def command(self: Row, report: Path, *, again: bool = False) -> list[str]:
        return [str(file) if word.startswith("tests/") else word for word in whole(self, report, again=again)]

    monkeypatch.setattr(Row, "command", command)


def test_a_run_without_a_report_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Row, "command", lambda self, report, again=False: [sys.executable, "-c", "raise SystemExit(3)"])
    assert rows.run(ROW, {}).failed == 3
