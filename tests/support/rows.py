"""One row of the table of tiers: a tier in one column, run in a pytest process of its own, and how it came out.

A few tests that failed are run once more by themselves: some bounds are of time, and whatever else the machine did
then is no fault of ours. Those that pass now are named in the table as unsteady.
"""

from __future__ import annotations

import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.engines.commands import run as run_command

NEEDS_ROOT = "needs root"
SECOND_TRIES = 3  # more failures than these are no accident


@dataclass(frozen=True)
class Row:
    """``column`` is empty for a tier that starts no service, or that goes through the columns by itself."""

    tier: str
    column: str
    budget_s: float

    @property
    def name(self) -> str:
        """As on the command line."""
        return f"{self.tier}@{self.column}" if self.column else self.tier

    def command(self, report: Path, *, again: bool = False) -> list[str]:
        """Its pytest process; ``again``: of the tests that failed in the process before."""
        options = ["-q", f"--junitxml={report}", "--durations=3", "-o", f"cache_dir={report.parent / 'cache'}"]
        options += ["--last-failed", "--last-failed-no-failures=none"] if again else []
        chosen = [f"--column={self.column}"] if self.column else []
        return [sys.executable, "-m", "pytest", f"tests/{self.tier}", *options, *chosen]


@dataclass
class Outcome:
    """Counts and seconds of one row. ``without`` says why it was not run at all."""

    row: Row
    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)
    seconds: float = 0.0
    without: str = ""
    unsteady: list[str] = field(default_factory=list)

    @property
    def left_out(self) -> str:
        """Why nothing of it ran here, where that is no fault: its column is missing, or only root can run it."""
        needs_root = not self.passed and not self.failed and all(NEEDS_ROOT in reason for reason in self.skipped)
        return self.without or (NEEDS_ROOT if needs_root and self.skipped else "")

    def problems(self, strict: bool, root: bool) -> list[str]:
        """Why this row does not count as passed."""
        if self.without:
            return ["its column is not there"] if strict else []
        if self.left_out and not strict and not root:
            return []
        found = [f"{self.failed} failed"] if self.failed else []
        if not self.passed and not self.failed:
            found.append("no test ran")
        if self.seconds > self.row.budget_s:
            found.append(f"over its budget of {self.row.budget_s:.0f} s")
        if strict and self.skipped:
            found.append("skipped: " + "; ".join(self.skipped[:5]))
        return found

    def line(self, problems: list[str]) -> str:
        """The row as printed."""
        counts = f"{self.row.name:22} {self.passed:7} {self.failed:7} {len(self.skipped):8} {self.seconds:8.1f}"
        verdict = f"left out: {self.left_out}" if self.left_out else "ok"
        if self.unsteady:
            verdict = f"ok, unsteady: {', '.join(self.unsteady)}"
        return f"{counts} {self.row.budget_s:7.0f}  {'; '.join(problems) or verdict}"


def run(row: Row, environment: Mapping[str, str]) -> Outcome:
    """Run it, and what failed once more, and read the reports."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        began = time.monotonic()
        code = run_command(row.command(report), environment)
        outcome, failed = read(row, report, code)
        if 0 < len(failed) == outcome.failed <= SECOND_TRIES:
            print(f"── once more, by themselves: {', '.join(failed)}", flush=True)
            second = Path(folder) / "second.xml"
            code = run_command(row.command(second, again=True), environment)
            if code == 0 and read(row, second, code)[0].passed == len(failed):
                outcome.passed, outcome.failed, outcome.unsteady = outcome.passed + len(failed), 0, failed
        outcome.seconds = time.monotonic() - began
        return outcome


def read(row: Row, report: Path, code: int) -> tuple[Outcome, list[str]]:
    """What pytest's report says, and which tests failed."""
    if not report.exists():
        return Outcome(row, failed=max(1, code)), []
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    count = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
    skipped, broken = [], []
    for case in suite.iter("testcase"):
        skipped += [f"{case.get('name')} ({element.get('message')})" for element in case.findall("skipped")]
        if case.find("failure") is not None or case.find("error") is not None:
            broken.append(str(case.get("name")))
    failed = count["failures"] + count["errors"]
    if code not in (0, 5) and not failed:
        failed = 1
    return Outcome(row, count["tests"] - failed - count["skipped"], failed, skipped), broken
