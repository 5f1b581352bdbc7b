"""The table that is printed and the JSON that is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.stats import Sample
from bench.targets import Row

_HEAD = ("row", "what", "min", "p50", "p95", "unit", "n", "target", "ratio", "verdict")
_RIGHT = {2, 3, 4, 6}


def table(rows: Sequence[Row], samples: Mapping[str, Sample], failures: Mapping[str, str]) -> str:
    """One line a row, columns as wide as they need be, notes and failures below."""
    lines = [_HEAD, *(_line(row, samples, failures) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
    text = ["  ".join(_pad(i, line[i], widths[i]) for i in range(len(_HEAD))) for line in lines]
    text.insert(1, "  ".join("-" * width for width in widths))
    text += [f"{row.key}: {samples[row.key].note}" for row in rows if row.key in samples and samples[row.key].note]
    text += [f"{key}: not measured: {reason}" for key, reason in failures.items()]
    return "\n".join(line.rstrip() for line in text)


def _pad(column: int, word: str, width: int) -> str:
    return word.rjust(width) if column in _RIGHT else word.ljust(width)


def _line(row: Row, samples: Mapping[str, Sample], failures: Mapping[str, str]) -> tuple[str, ...]:
    sample = samples.get(row.key)
    if sample is None:
        return row.key, row.title, "", "", "", row.unit, "", row.target, "", "failed" if row.key in failures else ""
    other = samples.get(row.against or "")
    ratio = row.ratio(sample, other)
    return (
        row.key,
        row.title,
        number(sample.least),
        number(sample.p50),
        number(sample.p95),
        row.unit,
        str(sample.n),
        row.target,
        "" if ratio is None else f"{ratio:.{2 if ratio >= 0.1 else 4}f} × {row.against}",
        row.verdict(sample, other),
    )


def number(value: float) -> str:
    """Three significant digits, and no fewer than the whole part needs."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def document(
    rows: Sequence[Row], samples: Mapping[str, Sample], failures: Mapping[str, str], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Everything as JSON."""
    return {"machine": dict(facts), "rows": [_entry(row, samples, failures) for row in rows]}


def _entry(row: Row, samples: Mapping[str, Sample], failures: Mapping[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {"row": row.key, "title": row.title, "unit": row.unit, "target": row.target or None}
    sample = samples.get(row.key)
    if sample is None:
        return {**entry, "failed": failures.get(row.key, "left out")}
    other = samples.get(row.against or "")
    ratio = row.ratio(sample, other)
    return {
        **entry,
        "p50": round(sample.p50, 4),
        "p95": round(sample.p95, 4),
        "min": round(sample.least, 4),
        "n": sample.n,
        "against": row.against,
        "ratio": None if ratio is None else round(ratio, 4),
        "verdict": row.verdict(sample, other),
        "note": sample.note,
        "values": [round(value, 4) for value in sample.values],
    }


def write(path: Path, body: Mapping[str, Any]) -> None:
    """Write the JSON, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(body, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
