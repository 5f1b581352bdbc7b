"""Pages through the files and links of a workspace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from starlette.responses import Response

from runner.api.v1 import translate
from runner.model import FileEntry
from runner.workspace import pieces
from runner.workspace.aside import aside
from runner.workspace.history import Workspace
from runner.workspace.names import ordered

T = TypeVar("T")


def page(items: Iterable[T], limit: int) -> tuple[list[T], bool]:
    """The first ``limit`` items, and whether there are more."""
    found = list(items)
    return found[:limit], len(found) > limit


async def current(workspace: Workspace, prefix: str, after: str | None, limit: int) -> dict[str, Any]:
    """Files and links as they are now below ``prefix``, in the order of their paths, from the one behind ``after``."""
    picture = await workspace.picture(None)
    some, more = page(islice(picture.listed(prefix, after), limit + 1), limit)
    return _page(some, more, picture.files, picture.links)


async def files(entries: Sequence[FileEntry]) -> Response:
    """The answer that lists all of these files, however many."""
    return Response(await aside(len(entries), _written, entries), media_type="application/json")


def _written(entries: Sequence[FileEntry]) -> bytes:
    return pieces.dumps({"files": [translate.file(entry) for entry in entries]}).encode("utf-8", "replace")


def tree(
    files: Mapping[str, FileEntry], links: Mapping[str, str], prefix: str, after: str | None, limit: int
) -> dict[str, Any]:
    """The same of a version."""
    paths = (path for place in (files, links) for path in place)
    names = ordered(path for path in paths if path.startswith(prefix) and (after is None or path > after))
    return _page(*page(names, limit), files, links)


def _page(some: list[str], more: bool, files: Mapping[str, FileEntry], links: Mapping[str, str]) -> dict[str, Any]:
    entries = [translate.file(files[path]) if path in files else translate.link(path, links[path]) for path in some]
    return {"files": entries, "next": some[-1] if more else None}
