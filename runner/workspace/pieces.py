"""JSON written and read in short steps. Pure.

The ``json`` module does a document in one call into C, and no other thread runs meanwhile: with some MiB, for tens
of milliseconds. Here it is one call for some entries at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

_AT_ONCE: Final = 200  # entries of a list or an object
_LEVELS: Final = 3  # long lists are looked for so deep
_SHORT: Final = 64 << 10  # bytes that are read in one step
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()


def dumps(document: object, *, nan: bool = False, separators: tuple[str, str] = (",", ":"), short: bool = False) -> str:
    """What ``json.dumps`` gives, without escapes for what is not ASCII. ``ValueError`` for NaN unless ``nan``.

    ``short``: the caller knows that one call into C takes no time that anybody would notice.
    """
    encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=nan, separators=separators)
    if short:
        return encoder.encode(document)
    return "".join(_written(document, encoder, _LEVELS))


def _written(value: object, encoder: json.JSONEncoder, levels: int) -> Iterator[str]:
    comma = encoder.item_separator
    if isinstance(value, dict) and len(value) > _AT_ONCE:
        lead = "{"
        items = iter(value.items())
        while some := dict(islice(items, _AT_ONCE)):
            yield lead + encoder.encode(some)[1:-1]
            lead = comma
        yield "}"
    elif isinstance(value, dict) and value and levels:
        lead = "{"
        for name, inner in value.items():
            if isinstance(inner, (dict, list)):
                yield lead + encoder.encode({name: 0})[1:-2]
                yield from _written(inner, encoder, levels - 1)
            else:
                yield lead + encoder.encode({name: inner})[1:-1]
            lead = comma
        yield "}"
    elif isinstance(value, list) and len(value) > _AT_ONCE:
        for at in range(0, len(value), _AT_ONCE):
            yield (comma if at else "[") + encoder.encode(value[at : at + _AT_ONCE])[1:-1]
        yield "]"
    else:
        yield encoder.encode(value)


def loads(data: bytes, until: str | None = None) -> Any:
    """What ``json.loads`` gives; of an object that has it, only what stands before the key ``until``."""
    if len(data) <= _SHORT and until is None:
        return json.loads(data)
    text = data.decode("utf-8", "surrogatepass")
    reader = _Reader(text)
    value = reader.object(until) if reader.at("{") else reader.value()
    if not reader.stopped and reader.place != len(text):
        raise ValueError("more than one value")
    return value


class _Reader:
    """A place in a text, behind spaces."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._go(0)
        self.stopped = False

    def at(self, sign: str) -> bool:
        """Whether ``sign`` stands here."""
        return self._text.startswith(sign, self.place)

    def value(self) -> Any:
        """A whole value."""
        value, end = _DECODER.raw_decode(self._text, self.place)
        self._go(end)
        return value

    def object(self, until: str | None) -> dict[str, Any]:
        """An object, whose lists and objects are read entry by entry."""
        found: dict[str, Any] = {}
        for name in self._keys():
            if name == until:
                self.stopped = True
                return found
            if self.at("["):
                found[name] = list(self._list())
            elif self.at("{"):
                found[name] = {inner: self.value() for inner in self._keys()}
            else:
                found[name] = self.value()
        return found

    def _list(self) -> Iterator[Any]:
        self._pass("[")
        while not self.at("]"):
            yield self.value()
            if not self._more("]"):
                break
        self._pass("]")

    def _keys(self) -> Iterator[str]:
        """Keys of an object; the caller reads each value before the next."""
        self._pass("{")
        while not self.at("}"):
            if not self.at('"'):
                raise ValueError(f"no key at {self.place}")
            name = self.value()
            self._pass(":")
            yield name
            if not self._more("}"):
                break
        self._pass("}")

    def _more(self, end: str) -> bool:
        """Whether an entry follows: a comma stands here, and not the end."""
        if self.at(end):
            return False
        self._pass(",")
        if self.at(end):
            raise ValueError(f"nothing behind the comma at {self.place}")
        return True

    def _pass(self, sign: str) -> None:
        if not self.at(sign):
            raise ValueError(f"no {sign} at {self.place}")
        self._go(self.place + 1)

    def _go(self, place: int) -> None:
        space = _SPACE.match(self._text, place)
        self.place = place if space is None else space.end()
