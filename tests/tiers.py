"""Runs the tiers one after the other, each against its time budget, and prints what ran and what did not.

``python -m tests.tiers [TIER …]``; without a name all of them. A tier fails when a test fails, when nothing
ran, when it takes longer than its budget, or, with ``CI`` set, when a test was skipped: what a tier needs
must be there. Without ``CI``, a tier that needs root is left out for a user.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

NEEDS_ROOT = "needs root"
BUDGETS_S = {"unit": 120, "contract": 90, "integration": 240, "e2e": 600, "hostile": 720, "durability": 400}


@dataclass
class Outcome:
    """Counts and seconds of one tier."""

    tier: str
    passed: int
    failed: int
    skipped: list[str]
    seconds: float

    @property
    def left_out(self) -> bool:
        """Whether every test was skipped because only root can run it."""
        return not self.passed and not self.failed and bool(self.skipped) and all(NEEDS_ROOT in s for s in self.skipped)

    def problems(self, strict: bool, root: bool) -> list[str]:
        """Why this tier does not count as passed."""
        if self.left_out and not strict and not root:
            return []
        found = [f"{self.failed} failed"] if self.failed else []
        if not self.passed and not self.failed:
            found.append("no test ran")
        if self.seconds > BUDGETS_S[self.tier]:
            found.append(f"over its budget of {BUDGETS_S[self.tier]} s")
        if strict and self.skipped:
            found.append("skipped: " + "; ".join(self.skipped[:5]))
        return found


def run(tier: str) -> Outcome:
    """One tier in a pytest process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", f"tests/{tier}", "-q", f"--junitxml={report}", "--durations=3"]
        code = subprocess.run(command, check=False).returncode
        seconds = time.monotonic() - began
        if not report.exists():
            return Outcome(tier, 0, max(1, code), [], seconds)
        suite = ElementTree.parse(report).getroot().find("testsuite")
        assert suite is not None
        count = {name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")}
        skipped = [
            f"{case.get('name')} ({element.get('message')})"
            for case in suite.iter("testcase")
            for element in case.findall("skipped")
        ]
        failed = count["failures"] + count["errors"]
        if code not in (0, 5) and not failed:
            failed = 1
        return Outcome(tier, count["tests"] - failed - count["skipped"], failed, skipped, seconds)


def main() -> int:
    """Run what was asked for and print the table."""
    tiers = sys.argv[1:] or list(BUDGETS_S)
    unknown = [tier for tier in tiers if tier not in BUDGETS_S]
    if unknown:
        print(f"no such tier: {', '.join(unknown)}; there are: {', '.join(BUDGETS_S)}", file=sys.stderr)
        return 2
    strict = bool(os.environ.get("CI"))
    outcomes = []
    for tier in tiers:
        print(f"── {tier} (budget {BUDGETS_S[tier]} s)", flush=True)
        outcomes.append(run(tier))
    print(f"{'tier':12} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8} {'budget':>7}")
    good = True
    for outcome in outcomes:
        problems = outcome.problems(strict, root=os.geteuid() == 0)
        good = good and not problems
        verdict = f"skipped: {NEEDS_ROOT}" if outcome.left_out else "ok"
        row = f"{outcome.tier:12} {outcome.passed:7} {outcome.failed:7} {len(outcome.skipped):8} {outcome.seconds:8.1f}"
        print(f"{row} {BUDGETS_S[outcome.tier]:7}  {'; '.join(problems) or verdict}")
    totals = [sum(o.passed for o in outcomes), sum(o.failed for o in outcomes), sum(len(o.skipped) for o in outcomes)]
    print("{} passed, {} failed, {} skipped".format(*totals))
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
