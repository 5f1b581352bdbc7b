"""Splits a long list of changes into pieces that each fit into a message (see ``MAX_JSON``)."""

from __future__ import annotations

from typing import Any

from .protocol import Json

PIECE_BYTES = 200 << 10
_LISTS = ("created", "modified", "deleted", "folders")


def split(report: Json) -> tuple[list[Json], Json]:
    """Pieces to send first, and what is left of the report; a short report stays whole."""
    parts: list[Json] = []
    rest = dict(report)
    for name in _LISTS:
        pieces = _pieces(report.get(name, []))
        if len(pieces) > 1:
            parts += [{name: piece} for piece in pieces]
            rest[name] = []
    pairs = _pieces(list(report.get("links", {}).items()))
    if len(pairs) > 1:
        parts += [{"links": dict(piece)} for piece in pairs]
        rest["links"] = {}
    return parts, rest


def _pieces(entries: list[Any]) -> list[list[Any]]:
    pieces: list[list[Any]] = []
    room = 0
    for entry in entries:
        if room <= 0:
            pieces.append([])
            room = PIECE_BYTES
        pieces[-1].append(entry)
        room -= _size(entry)
    return pieces


def _size(entry: Any) -> int:
    if isinstance(entry, dict):
        return 80 + len(entry["path"])
    return 10 + (len(entry) if isinstance(entry, str) else len(entry[0]) + len(entry[1]))
