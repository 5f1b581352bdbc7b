"""A table of what the present services do badly: each row names the tests that prove it beaten, or says whose it is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from tests.support.columns import BUBBLEWRAP


@dataclass(frozen=True)
class Row:
    """``tests`` prove a row of the runner's; ``why`` says of a row of the gateway's why a runner cannot beat it."""

    number: int
    words: str
    tests: tuple[str, ...] = ()
    why: str = ""


def collected(tests: Iterable[str]) -> set[str]:
    """Those among ids of tests that pytest finds in the column that has all, whatever their parameters are."""
    files = sorted({test.partition("::")[0] for test in tests})
    there = [file for file in files if os.path.exists(file)]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    command += ["--column", BUBBLEWRAP.name, *there]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    return {line.partition("[")[0] for line in found.stdout.splitlines() if "::" in line}


def unproven(rows: Iterable[Row], found: set[str]) -> list[str]:
    """What is wrong with a table: tests that are not there, rows with neither tests nor a reason, and with both."""
    rows = list(rows)
    wrong = [f"{row.number}: no test {test}" for row in rows for test in row.tests if test not in found]
    return wrong + [f"{row.number}: tests or a reason, one of them" for row in rows if bool(row.tests) == bool(row.why)]
