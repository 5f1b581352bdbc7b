"""Lines of long streams: by one definition of a line, within the bytes asked for, and without taking streams apart."""

from __future__ import annotations

import tracemalloc

import pytest

from runner.tools.lines import Lines

STREAMS = [
    b"", b"\n", b"a", b"a\n", b"a\nb", b"\n\n\n", b"a\r\nb\rc\r\n", "ä\u2028b\x0cc\x85d\n".encode(), b"\xff\xfe\n\x80",
    b"x" * 5000 + b"\n" + b"y\n" * 3000 + b"z" * 2000,
]  # fmt: skip


def plain(content: bytes) -> list[str]:
    """What ends at a newline, the simple way."""
    lines = content.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    return [line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines]


@pytest.mark.parametrize("content", STREAMS)
def test_every_line_is_found_by_its_number(content: bytes) -> None:
    lines, wanted = Lines(content), plain(content)
    assert lines.total == len(wanted)
    for number, line in enumerate(wanted, 1):
        assert lines.shown([number], 1 << 20).text == f"{number}: {line}"
    whole = lines.shown(range(1, lines.total + 1), 1 << 20)
    assert (whole.count, whole.cut) == (len(wanted), False)
    assert whole.text == "\n".join(f"{number}: {line}" for number, line in enumerate(wanted, 1))
    odd = lines.shown(range(1, lines.total + 1, 2), 1 << 20)
    assert odd.text == "\n".join(f"{number}: {wanted[number - 1]}" for number in range(1, lines.total + 1, 2))


def test_numbers_that_are_none_of_a_line_are_left_out() -> None:
    assert Lines(b"a\rb").shown([-1, 0, 1, 2, 1 << 70], 256).text == "1: a\rb"


@pytest.mark.parametrize("most", range(256, 264))
@pytest.mark.parametrize("letter", ["a", "ä", "€", "𝄞"])
def test_a_line_that_is_longer_alone_is_cut_between_characters(letter: str, most: int) -> None:
    line = letter * 5000
    shown = Lines(line.encode() + b"\nnext\n").shown([1, 2], most)
    assert (shown.count, shown.cut) == (1, True)
    assert most - 4 < len(shown.text.encode()) <= most
    text, mark, _ = shown.text.partition(" … [cut: this line has")
    assert mark and line.startswith(text.removeprefix("1: "))


def test_a_later_line_that_does_not_fit_is_left_for_the_next_call() -> None:
    shown = Lines(b"a\n" + b"b" * 300 + b"\n").shown([1, 2], 256)
    assert (shown.count, shown.text, shown.cut) == (1, "1: a", False)


def test_what_cannot_be_decoded_counts_as_it_is_shown() -> None:
    """One byte becomes a sign of three."""
    shown = Lines(b"\xff" * 200).shown([1], 256)
    assert shown.cut and len(shown.text.encode()) <= 256


def test_sixteen_mebibytes_of_lines_are_not_taken_apart() -> None:
    content = b"a\n" * (8 << 20)
    tracemalloc.start()
    try:
        lines = Lines(content)
        shown = lines.shown(range(1, lines.total, 5000), 65536)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (lines.total, shown.text.splitlines()[1]) == (8 << 20, "5001: a")
    assert peak < 4 << 20
