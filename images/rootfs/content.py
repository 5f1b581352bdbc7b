"""Read the lists under images/sandbox and give the content hash that names a built tree."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from pathlib import Path

SUITE = "trixie"
DEFAULT_GROUPS = ("core", "office", "media", "fonts", "fonts-extra", "ocr", "web", "network", "build")
SLIM_GROUPS = ("core", "fonts")
# Raise it when the way of building changes the tree without any change of the lists.
FORMAT = 1


class UnknownGroupError(ValueError):
    """A group that has no list; the message names those that exist."""


def parse_list(text: str) -> list[str]:
    """Return the names of a list: one a line, `#` starts a comment, order kept, doubles dropped."""
    names = (line.split("#", 1)[0].strip() for line in text.splitlines())
    return list(dict.fromkeys(name for name in names if name))


def known_groups(sandbox: Path) -> list[str]:
    """Return the names of all groups, sorted."""
    return sorted(path.stem for path in (sandbox / "apt").glob("*.txt"))


def normalise_groups(wanted: list[str], known: list[str]) -> tuple[str, ...]:
    """Return the groups with `core` first and the rest sorted; raise UnknownGroupError, for an empty list too."""
    if not wanted:
        raise UnknownGroupError(f"no group is named; there are: {', '.join(known)}")
    unknown = [group for group in wanted if group not in known]
    if unknown:
        raise UnknownGroupError(f"no such group: {', '.join(unknown)}; there are: {', '.join(known)}")
    return ("core", *sorted(set(wanted) - {"core"}))


def content_files(sandbox: Path, groups: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files that decide what the tree becomes, sorted; lists of other groups are left out."""
    chosen = {f"{group}.txt" for group in groups}
    for path in sorted(sandbox.rglob("*")):
        relative = path.relative_to(sandbox)
        if not path.is_file() or "__pycache__" in relative.parts:
            continue
        if relative.parts[0] == "apt" and relative.name not in chosen:
            continue
        yield path


def certificates(images: Path) -> list[Path]:
    """Return the extra CA files that the tree shall trust, sorted."""
    return sorted((images / "certs").glob("*.crt"))


def content_hash(images: Path, groups: tuple[str, ...], machine: str | None = None) -> str:
    """Return 64 hex digits that change when anything does that decides what the tree becomes."""
    sandbox = images / "sandbox"
    digest = hashlib.sha256()
    head = (f"format {FORMAT}", SUITE, machine or platform.machine(), *groups)
    digest.update("\n".join(head).encode())
    for path in [*content_files(sandbox, groups), *certificates(images)]:
        data = path.read_bytes()
        name = path.relative_to(images).as_posix()
        digest.update(f"\0{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()
