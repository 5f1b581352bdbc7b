"""``python -m bench``: measures every row, prints the table, writes the JSON.

Exit status 0 when every row asked for could be measured, whatever the numbers are; 1 when one could not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench import containers, facts, report
from bench.lab import Lab
from bench.measures import MEASURES
from bench.stats import Sample
from bench.targets import BY_KEY, ROWS, Row

_OUTPUT = Path("bench-output/bench.json")
Measure = Callable[[Lab], Sample]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report; gives the exit status."""
    options = _options(arguments)
    rows = _chosen(options.only)
    without = containers.missing() if any(row.docker for row in rows) else ""
    if without:
        rows = [row for row in rows if not row.docker]
        _say(f"rows of the Docker backend are left out: {without}\n")
    began = time.monotonic()
    machine = facts.gather()
    with tempfile.TemporaryDirectory(prefix="foliobox-bench-") as folder:
        lab = Lab(Path(folder), quick=options.quick)
        try:
            samples, failures = measure(rows, lab, MEASURES)
        finally:
            lab.close()
    machine |= {"load_average_after": facts.load(), "quick": options.quick, "backends": lab.backends}
    report.write(options.json, report.document(rows, samples, failures, machine))
    sys.stdout.write(f"\n{report.table(rows, samples, failures)}\n\n")
    sys.stdout.write(
        f"{machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}, load average "
        f"{machine['load_average'][0]} before and {machine['load_average_after'][0]} after; "
        f"{time.monotonic() - began:.0f} s; all values in {options.json}\n"
    )
    return 1 if failures else 0


def measure(rows: Sequence[Row], lab: Lab, measures: Mapping[str, Measure]) -> tuple[dict[str, Sample], dict[str, str]]:
    """Every row's sample, or why there is none; a line is printed as each is done."""
    samples: dict[str, Sample] = {}
    failures: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        _say(f"[{number:2}/{len(rows)}] {row.title} … ")
        try:
            samples[row.key] = measures[row.key](lab)
        except Exception as error:  # one row that cannot be measured must not cost the others
            failures[row.key] = f"{type(error).__name__}: {error}"
            _say("failed\n")
        else:
            _say(f"{report.number(samples[row.key].p50)} {row.unit}\n")
    return samples, failures


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench", description="Measure this service beside floors and a peer.")
    parser.add_argument(
        "--only", action="append", default=[], metavar="ROW", help=f"only this row; again for more: {', '.join(BY_KEY)}"
    )
    parser.add_argument("--quick", action="store_true", help="fewer repetitions: a first look")
    parser.add_argument("--json", type=Path, default=_OUTPUT, metavar="PATH", help="where the values go")
    options = parser.parse_args(arguments)
    for key in options.only:
        if key not in BY_KEY:
            parser.error(f"there is no row {key!r}: choose from {', '.join(BY_KEY)}")
    return options


def _chosen(only: Sequence[str]) -> list[Row]:
    """The rows asked for, with those they are compared with; all when none is named."""
    wanted = set(only or BY_KEY)
    for key in tuple(wanted):
        against = BY_KEY[key].against
        if against is not None:
            wanted.add(against)
    return [row for row in ROWS if row.key in wanted]


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
