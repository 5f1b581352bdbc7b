"""One block of a tar archive: its fields, its checksum, and the records of a PAX header. Pure.

Strict on purpose. Everything that a workspace cannot hold, and everything that programs read in different
ways, is ``BadArchive``: what is refused here can mean nothing else later.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from runner.errors import BadArchive

BLOCK: Final = 512
REGULAR: Final = frozenset((b"0", b"\0", b"7"))
FOLDER: Final = b"5"
PAX: Final = b"x"
PAX_GLOBAL: Final = b"g"
LONG_NAME: Final = b"L"
LONG_LINK: Final = b"K"
_KINDS: Final = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"S": "a sparse file",
    b"M": "a part of a file on several volumes",
    b"V": "a volume label",
    b"D": "a GNU directory dump",
}
_OCTAL: Final = re.compile(rb" *([0-7]*)[ \0]*")
_LENGTH: Final = re.compile(rb"([1-9][0-9]{0,5}) ")


@dataclass(frozen=True, slots=True)
class Header:
    """A header block. ``size`` is that of what follows, in bytes; ``name`` is not decoded yet."""

    name: bytes
    size: int
    kind: bytes
    mode: int
    modified_s: int


def parse(block: bytes) -> Header:
    """The header in a block that is not all zeros. Raises ``BadArchive``."""
    given = _number(block[148:156], "checksum")
    plain = block[:148] + b" " * 8 + block[156:]
    signed = sum(byte - 256 if byte > 127 else byte for byte in plain)
    if given not in (sum(plain), signed):
        raise BadArchive("this is not a tar archive, or it is damaged: the checksum of a header is wrong")
    name = block[:100].split(b"\0", 1)[0]
    if block[257:263] == b"ustar\0":
        prefix = block[345:500].split(b"\0", 1)[0]
        name = prefix + b"/" + name if prefix else name
    size, mode, modified = _number(block[124:136], "size"), _number(block[100:108], "mode"), _time(block[136:148])
    return Header(name, size, block[156:157], mode, modified)


def kind_named(kind: bytes) -> str:
    """What a member of that type is, for a message."""
    return _KINDS.get(kind, f"of the unknown type {ascii(kind)[1:]}")


def pax_records(data: bytes) -> dict[str, bytes]:
    """The records of a PAX header, later ones over earlier ones. Raises ``BadArchive``."""
    records: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        match = _LENGTH.match(data, at)
        end = at + int(match[1]) if match else 0
        name, equals, value = data[match.end() : end - 1].partition(b"=") if match else (b"", b"", b"")
        if match is None or end > len(data) or end <= match.end() or data[end - 1 : end] != b"\n" or not equals:
            raise BadArchive("the archive is damaged: a PAX header does not hold records")
        records[name.decode("ascii", "replace")] = value
        at = end
    return records


def nanoseconds(value: bytes) -> int:
    """A time in a PAX record: seconds since 1970, with a fraction or without. Raises ``BadArchive``."""
    match = re.fullmatch(rb"(-?)([0-9]{1,18})(?:\.([0-9]{0,40}))?", value)
    if match is None:
        raise BadArchive("the archive is damaged: a time in a PAX header is no number")
    return 0 if match[1] else int(match[2]) * 1_000_000_000 + int(((match[3] or b"") + b"0" * 9)[:9])


def decimal(value: bytes) -> int:
    """A size in a PAX record. Raises ``BadArchive``."""
    if not re.fullmatch(rb"[0-9]{1,19}", value):
        raise BadArchive("the archive is damaged: a size in a PAX header is no whole number")
    return int(value)


def _time(field: bytes) -> int:
    """Seconds since 1970; a time before is 1970."""
    return 0 if field[0] & 0xC0 == 0xC0 else _number(field, "time")


def _number(field: bytes, what: str) -> int:
    """Octal digits, or binary as GNU writes what octal cannot hold."""
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise BadArchive(f"the archive is damaged: a {what} is negative or has no end")
        return int.from_bytes(field[1:], "big")
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise BadArchive(f"this is not a tar archive, or it is damaged: a {what} is no octal number")
    return int(match[1] or b"0", 8)
