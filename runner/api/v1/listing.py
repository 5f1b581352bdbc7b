"""Pages through the files and links of a workspace. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from runner.api.v1 import translate
from runner.model import FileEntry

T = TypeVar("T")


def page(items: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """The first ``limit`` items, and whether there are more."""
    found = list(items)
    return found[:limit], len(found) > limit


def tree(
    files: Mapping[str, FileEntry], links: Mapping[str, str], prefix: str, after: str | None, limit: int
) -> dict[str, Any]:
    """Files and links below ``prefix``, in the order of their paths, from the one behind ``after`` on."""
    paths = (path for place in (files, links) for path in place)
    names = sorted(path for path in paths if path.startswith(prefix) and (after is None or path > after))
    some, more = page(names, limit)
    entries = [translate.file(files[path]) if path in files else translate.link(path, links[path]) for path in some]
    return {"files": entries, "next": some[-1] if more else None}
