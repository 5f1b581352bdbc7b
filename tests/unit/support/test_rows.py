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

    def command(self: Row, report: Path) -> list[str]:
        return [sys.executable, "-m", "pytest", str(file), "-q", f"--junitxml={report}", "-p", "no:cacheprovider"]

    monkeypatch.setattr(Row, "command", command)
    outcome = rows.run(Row("three", "", 60), {})
    assert (outcome.passed, outcome.failed) == (1, 1)
    assert outcome.skipped == ["test_is_skipped (nothing to do it with)"]


def test_a_run_without_a_report_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Row, "command", lambda self, report: [sys.executable, "-c", "raise SystemExit(3)"])
    assert rows.run(ROW, {}).failed == 3
