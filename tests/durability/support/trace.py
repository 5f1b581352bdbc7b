"""Reads what ``strace -f -y`` wrote into calls with a beginning and an end. Pure.

A line is ``PID name(arguments) = result``. A call during which another thread was seen comes as two lines,
``<unfinished ...>`` and ``<... name resumed>``; then its beginning and its end lie apart, which matters: an
fsync covers what had ended when it began, and a call in flight may or may not have happened.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

_LINE = re.compile(r"(\d+)\s+(.*)", re.DOTALL)
_CALL = re.compile(r"(\w+)\(")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>")
_UNFINISHED = re.compile(r"\s*<unfinished \.\.\.>$")
_RESULT = re.compile(r"\s*=\s*(-?\d+|\?|0x[0-9a-f]+)(.*)", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(\.\.\.)?', re.DOTALL)
_NOTE = re.compile(r"<((?:[^<>]|->|<->)*)>")
_FD = re.compile(r"(-?\d+|AT_FDCWD)(?:<((?:[^<>]|->|<->)*)>)?")


class TraceError(Exception):
    """A line that cannot be understood: a proof over it would prove nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """A system call. ``result`` is None while unknown, negative for an error whose name is ``error``."""

    pid: int
    name: str
    args: tuple[str, ...]
    result: int | None = None
    error: str = ""
    note: str = ""
    injected: bool = False

    @property
    def ok(self) -> bool:
        """Whether it really happened: a success that strace only pretended did not."""
        return self.result is not None and self.result >= 0 and not self.injected

    def text(self, index: int) -> bytes:
        """A string argument as bytes."""
        match = _STRING.fullmatch(self.args[index])
        if match is None or match[2]:
            raise TraceError(f"{self.name}: argument {index} is no whole string: {self.args[index][:80]}")
        return unescape(match[1])

    def strings(self) -> bytes:
        """All strings of all arguments, one after the other: what a gathering write sends."""
        return _strings(self.args)

    def fd(self, index: int) -> tuple[int, str]:
        """A descriptor and what -y says it leads to; -1 stands for the current folder."""
        match = _FD.match(self.args[index])
        if match is None:
            raise TraceError(f"{self.name}: argument {index} is no descriptor: {self.args[index][:80]}")
        return (-1 if match[1] == "AT_FDCWD" else int(match[1])), match[2] or ""

    def number(self, index: int) -> int:
        """A number as an argument."""
        return int(self.args[index], 0)


@dataclass(frozen=True, slots=True)
class Step:
    """The beginning or the end of a call; one that nothing interrupted gives both, in this order."""

    phase: Literal["begin", "end"]
    call: Call
    line: int


@lru_cache(4096)
def _strings(args: tuple[str, ...]) -> bytes:
    return b"".join(unescape(match[1]) for arg in args for match in _STRING.finditer(arg))


def unescape(text: str) -> bytes:
    """The bytes of a string as strace escapes it, which is how C and Python do."""
    if "\\" not in text:
        return text.encode("ascii")
    found: bytes = ast.literal_eval(f'b"{text}"')
    return found


def steps(lines: Iterable[str]) -> Iterator[Step]:
    """Beginnings and ends in the order in which they were seen. Signals and exits are left out."""
    open_calls: dict[int, tuple[str, Call]] = {}
    for number, raw in enumerate(lines, 1):
        match = _LINE.match(raw.rstrip("\n"))
        if match is None:
            raise TraceError(f"line {number} has no process id: {raw[:80]!r}")
        pid, rest = int(match[1]), match[2]
        if rest.startswith(("---", "+++")):
            if rest.startswith("+++"):
                open_calls.pop(pid, None)
            continue
        resumed = _RESUMED.match(rest)
        if resumed:
            if pid not in open_calls:
                raise TraceError(f"line {number} resumes a call that never began")
            head, begun = open_calls.pop(pid)
            yield Step("end", parse(pid, head + rest[resumed.end() :], begun), number)
        elif _UNFINISHED.search(rest):
            head = _UNFINISHED.sub("", rest)
            call = parse(pid, head, None)
            open_calls[pid] = (head, call)
            yield Step("begin", call, number)
        else:
            call = parse(pid, rest, None)
            yield Step("begin", call, number)
            yield Step("end", call, number)


def parse(pid: int, text: str, begun: Call | None) -> Call:
    """One call; without its result when the text ends before."""
    name = _CALL.match(text)
    if name is None or (begun is not None and name[1] != begun.name):
        raise TraceError(f"no call: {text[:80]!r}")
    args, place = arguments(text, name.end())
    result = _RESULT.match(text, place)
    if result is None:
        return Call(pid, name[1], args)
    said = result[2]
    value = None if result[1] == "?" else int(result[1], 0)
    error = re.match(r"\s+(E[A-Z0-9]+)\b", said)
    note = _NOTE.match(said)
    return Call(pid, name[1], args, value, error[1] if error else "", note[1] if note else "", "(INJECTED)" in said)


def arguments(text: str, place: int) -> tuple[tuple[str, ...], int]:
    """The arguments from ``place`` on, split at commas of the top level, and where they end."""
    found: list[str] = []
    start, depth = place, 0
    while place < len(text):
        char = text[place]
        token = _STRING.match(text, place) if char == '"' else _NOTE.match(text, place) if char == "<" else None
        if token is not None:
            place = token.end()
            continue
        if char in "([{":
            depth += 1
        elif char in ")]}" and depth:
            depth -= 1
        elif char == ")" or (char == "," and not depth):
            found.append(text[start:place].strip())
            start = place + 1
            if char == ")":
                return tuple(arg for arg in found if arg), place + 1
        place += 1
    found.append(text[start:].strip())
    return tuple(arg for arg in found if arg), len(text)
