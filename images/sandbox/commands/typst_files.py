"""What ``typst compile`` writes: page ranges, names of pages, one file or several, and short diagnostics."""

from __future__ import annotations

import argparse
import io
import re
import sys
from pathlib import Path

Ranges = list[tuple[int | None, int | None]]
_PLACE = re.compile(r"^\s*┌─ (?P<place>.+:\d+:\d+)\s*$")
_HEAD = re.compile(r"^(?P<kind>error|warning): (?P<text>.*)$")


class ManyPagesError(Exception):
    """Several pictures and only one place to put them."""


def page_ranges(text: str) -> Ranges:
    """``1,3-6,8-`` as pairs of first and last page, either end open."""
    result: Ranges = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)?\s*(-)?\s*(\d+)?\s*", part)
        if not found or not (found[1] or found[3]):
            raise argparse.ArgumentTypeError(f"not a page or a range of pages: {part!r}")
        first, last = (int(group) if group else None for group in (found[1], found[3]))
        if 0 in (first, last):
            raise argparse.ArgumentTypeError("page numbers start at one")
        if first and last and last < first:
            raise argparse.ArgumentTypeError("page export range must end at a page after the start")
        result.append((first, last if found[2] else first))
    return result


def chosen(count: int, ranges: Ranges | None) -> list[int]:
    """The numbers of the pages to write, in the document's order."""
    if ranges is None:
        return list(range(1, count + 1))
    return [n for n in range(1, count + 1) if any((a or 1) <= n <= (b or count) for a, b in ranges)]


def has_page_number(path: str) -> bool:
    """Whether an output path has a different name for each page."""
    return "{p}" in path or "{0p}" in path


def page_path(path: str, number: int, count: int) -> str:
    """The output path of one page."""
    width = len(str(count))
    return path.replace("{p}", str(number)).replace("{0p}", f"{number:0{width}}").replace("{t}", str(count))


def some_pages(document: bytes, ranges: Ranges) -> bytes:
    """A PDF with the chosen pages alone."""
    import pikepdf

    with pikepdf.open(io.BytesIO(document)) as pdf:
        keep = set(chosen(len(pdf.pages), ranges))
        for number in range(len(pdf.pages), 0, -1):
            if number not in keep:
                del pdf.pages[number - 1]
        out = io.BytesIO()
        pdf.save(out)
    return out.getvalue()


def put(data: bytes, output: str) -> None:
    """Write a file, or standard output for ``-``."""
    if output == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        Path(output).write_bytes(data)


def deliver(pages: list[bytes], wanted: str, output: str, ranges: Ranges | None) -> None:
    """Write what was compiled; raise ManyPagesError for pictures that would overwrite each other."""
    if wanted in ("pdf", "html"):
        put(some_pages(pages[0], ranges) if wanted == "pdf" and ranges is not None else pages[0], output)
        return
    numbers = chosen(len(pages), ranges)
    templated = output != "-" and has_page_number(output)
    if len(numbers) > 1 and not templated:
        where = "to stdout" if output == "-" else "without a page number template ({p}, {0p}) in the output path"
        raise ManyPagesError(f"cannot export multiple images {where}")
    for number in numbers:
        put(pages[number - 1], page_path(output, number, len(pages)) if templated else output)


def short(diagnostic: str) -> str:
    """Each message of a diagnostic on one line: ``file:line:column: error: text``."""
    lines: list[str] = []
    head = ""
    for line in diagnostic.splitlines():
        if found := _HEAD.match(line):
            if head:
                lines.append(head)
            head = found[0]
        elif head and (place := _PLACE.match(line)):
            lines.append(f"{place['place']}: {head}")
            head = ""
    return "\n".join([*lines, *([head] if head else [])]) + "\n"
