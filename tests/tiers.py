"""Runs the tiers one after the other, each in its columns and against its budget, and prints what ran and what did not.

``python -m tests.tiers [TIER | TIER@COLUMN …]``; without a name all of them. ``ENGINES=bubblewrap`` leaves Docker's
columns out. A row fails when a test fails, when nothing ran, when it takes longer than its budget, or, with ``CI``
set, when a test or a column was left out that nobody asked to leave out. Without ``CI``, what needs root or an engine
is left out for a user, and said.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from tests.support import rows
from tests.support.columns import BUBBLEWRAP
from tests.support.engines.commands import Ended, signals_end_us
from tests.support.engines.offer import Offer, offer, wanted
from tests.support.rows import Outcome, Row

# Seconds on two cores. A tier with an empty column starts no service, or goes through the columns by itself.
ROWS = (
    Row("unit", "", 240),
    Row("contract", "", 300),
    Row("integration", "", 700),
    Row("e2e", "bubblewrap", 1000),
    Row("e2e", "docker-runc", 1100),
    Row("e2e", "docker-runsc", 1200),
    Row("conformance", "bubblewrap", 420),
    Row("conformance", "docker-runc", 600),
    Row("hostile", "bubblewrap", 900),
    Row("hostile", "docker-runc", 600),
    Row("hostile", "docker-runsc", 600),
    Row("durability", "bubblewrap", 480),
)
WITHOUT_ENGINES = ("unit", "durability")


def chosen(names: list[str], environment: Mapping[str, str]) -> list[Row]:
    """The rows that were asked for, as far as ``ENGINES`` lets them in. Raises ValueError for a name there is not."""
    known = {row.name for row in ROWS} | {row.tier for row in ROWS}
    if unknown := set(names) - known:
        raise ValueError(f"no such tier: {', '.join(sorted(unknown))}; there are: {', '.join(r.name for r in ROWS)}")
    asked = [row for row in ROWS if not names or row.name in names or row.tier in names]
    columns = {column.name for column in wanted(environment)} | {BUBBLEWRAP.name, ""}
    return [row for row in asked if row.column in columns]


def engines_for(asked: list[Row], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment to look for columns in: without engines where no row can use one."""
    needed = any(row.column != BUBBLEWRAP.name and row.tier not in WITHOUT_ENGINES for row in asked)
    return {**environment} if needed else {**environment, "ENGINES": BUBBLEWRAP.name}


def run_all(asked: list[Row], made: Offer) -> list[Outcome]:
    """Every row whose column is there, one after the other."""
    outcomes = []
    for row in asked:
        if row.column in made.left_out:
            outcomes.append(Outcome(row, without=made.left_out[row.column].splitlines()[0]))
            continue
        print(f"── {row.name} (budget {row.budget_s:.0f} s)", flush=True)
        outcomes.append(rows.run(row, made.environment))
    return outcomes


def report(outcomes: list[Outcome], made: Offer, strict: bool) -> bool:
    """Print the table; whether all is well."""
    good = not (strict and made.left_out)
    print(f"{'tier@column':22} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8} {'budget':>7}")
    for outcome in outcomes:
        problems = outcome.problems(strict, root=os.geteuid() == 0)
        good = good and not problems
        print(outcome.line(problems))
    totals = [sum(o.passed for o in outcomes), sum(o.failed for o in outcomes), sum(len(o.skipped) for o in outcomes)]
    print("{} passed, {} failed, {} skipped in {:.0f} s".format(*totals, sum(o.seconds for o in outcomes)))
    for name, why in made.left_out.items():
        print(f"column {name} was left out{', which CI does not allow' if strict else ''}: {why}")
    return good


def main() -> int:
    """Run what was asked for and print the table."""
    try:
        asked = chosen(sys.argv[1:], os.environ)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    signals_end_us()
    try:
        with offer(engines_for(asked, os.environ)) as made:
            return 0 if report(run_all(asked, made), made, strict=bool(os.environ.get("CI"))) else 1
    except Ended as end:
        return end.status


if __name__ == "__main__":
    raise SystemExit(main())
