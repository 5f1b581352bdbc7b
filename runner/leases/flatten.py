"""Chooses which changed files an answer delivers, and gives each a flat name of its own. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

MOST: Final = 64
DEEPEST: Final = 8
_SKIPPED_FOLDERS: Final = frozenset(("node_modules", "__pycache__", "site-packages", "venv"))


@dataclass(frozen=True, slots=True)
class Chosen:
    """``files`` are pairs of flat name and path, in the order of the walk. ``truncated``: there were more."""

    files: list[tuple[str, str]] = field(default_factory=list)
    truncated: bool = False
    empty: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)


def choose(sizes: Mapping[str, int], inputs: Collection[str], largest: int, most: int = MOST) -> Chosen:
    """From new and changed files by path: at most ``most``, none empty, none larger than ``largest``.

    ``inputs`` are names that were staged: they count as taken, but for the file that has that very path.
    """
    chosen = Chosen()
    picked: list[str] = []
    truncated = False
    for path in sorted(filter(wanted, sizes), key=walk_order):
        if not sizes[path]:
            chosen.empty.append(path)
        elif sizes[path] > largest:
            chosen.too_large.append(path)
        elif len(picked) == most:
            truncated = True
            break
        else:
            picked.append(path)
    names = flat_names(picked, inputs)
    return Chosen([(names[path], path) for path in picked], truncated, chosen.empty, chosen.too_large)


def wanted(path: str) -> bool:
    """Whether the walk comes to a file: not too deep, and in no folder that is passed over."""
    folders = path.split("/")[:-1]
    return len(folders) <= DEEPEST and not any(name.startswith(".") or name in _SKIPPED_FOLDERS for name in folders)


def walk_order(path: str) -> tuple[list[str], str]:
    """Top-down and sorted: files of a folder first, then its folders one after the other."""
    *folders, name = path.split("/")
    return folders, name


def flat_names(paths: Collection[str], inputs: Collection[str] = ()) -> dict[str, str]:
    """One path component for each path; names at the top stay as they are, the others give way with -2, -3, …"""
    top = [path for path in paths if "/" not in path]
    names = {path: path for path in top}
    taken = {*inputs, *top}
    for path in paths:
        if path not in names:
            names[path] = _free(path.replace("/", "-").replace("\\", "-"), taken)
            taken.add(names[path])
    return names


def _free(name: str, taken: Collection[str]) -> str:
    if name not in taken:
        return name
    stem, dot, ending = name.rpartition(".")
    if not stem:  # no ending, or nothing but one
        stem, dot, ending = name, "", ""
    number = 2
    while f"{stem}-{number}{dot}{ending}" in taken:
        number += 1
    return f"{stem}-{number}{dot}{ending}"
