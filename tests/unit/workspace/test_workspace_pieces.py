"""JSON in pieces is the JSON of the ``json`` module, byte for byte and value for value."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from runner.workspace import pieces

LONG: list[Any] = [["é/\ud800", number, None, 1.5, {"a": []}] for number in range(1001)]
DOCUMENTS: list[Any] = [
    {},
    [],
    None,
    "text",
    {"a": {}, "b": [], "c": {"d": {"e": {"f": LONG}}}},
    {"files": LONG, "links": {f"l{n}": "to" for n in range(777)}, "é": 1},
    {f"{n}": [n] for n in range(450)},
    LONG,
    {2: 2, None: 3, True: LONG},
]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("number", range(len(DOCUMENTS)))
def test_written_and_read_like_json_does(number: int, separators: tuple[str, str]) -> None:
    document = DOCUMENTS[number]
    expected = json.dumps(document, ensure_ascii=False, separators=separators)
    assert pieces.dumps(document, separators=separators) == expected
    data = expected.encode("utf-8", "surrogatepass")
    for spread in (data, json.dumps(document, indent=3).encode(), b" \n" + data + b"\t"):
        padded = spread + b" " * (70_000 - len(spread))  # so long that it is read in pieces
        assert pieces.loads(padded) == pieces.loads(spread) == json.loads(spread)


def test_no_numbers_that_json_has_not_unless_asked_for() -> None:
    with pytest.raises(ValueError, match="JSON"):
        pieces.dumps({"a": [float("nan")]})
    assert pieces.dumps({"a": [float("inf")]}, nan=True) == '{"a":[Infinity]}'


def test_only_the_head_is_read() -> None:
    assert pieces.loads(b'{"a": 1, "b": [2], "files": [no JSON at all', "files") == {"a": 1, "b": [2]}
    assert pieces.loads(b'{"a": 1}', "files") == {"a": 1}


def test_what_is_no_json_is_none_in_pieces_either() -> None:
    dice = random.Random(4)
    good = pieces.dumps({"a": [1, [2, "x"]], "b": {"c": 1, "d": "}"}, "e": None}).encode()
    refused = 0
    for _ in range(20_000):
        bad = bytearray(good)
        for _ in range(dice.randrange(1, 3)):
            at = dice.randrange(len(bad))
            bad[at : at + dice.randrange(2)] = dice.choice((b"", b",", b"]", b"}", b'"', b":", b"{", b"[", b"1", b" "))
        data = bytes(bad) + b" " * 70_000
        try:
            expected = json.loads(data)
        except ValueError:
            refused += 1
            with pytest.raises(ValueError):  # any of them
                pieces.loads(data)
        else:
            assert pieces.loads(data) == expected
    assert 5_000 < refused < 20_000
