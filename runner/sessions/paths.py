"""Paths as the sessions protocol means them: relative to ``/workspace``, with ``..`` and links resolved. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final

from runner.errors import InvalidPath
from runner.workspace.paths import ROOTS, is_canonical

_HOPS: Final = 40  # as many links as a kernel follows
_MAX: Final = 8192
NOT_UNDER: Final = "path must be under /workspace"
OUTSIDE: Final = "path resolves outside /workspace"


def resolve(path: str, links: Mapping[str, str]) -> str:
    """The canonical path of a file, relative to the workspace.

    ``links`` are those of the workspace, target by path. Raises InvalidPath with the protocol's text.
    """
    if len(path) > _MAX or "\0" in path:
        raise InvalidPath(NOT_UNDER)
    inside = _inside(posixpath.normpath(posixpath.join("/workspace", path)))
    if not inside or not path or path.endswith(("/", "/.")):
        raise InvalidPath(NOT_UNDER)
    found = followed(inside, links)
    if not found:
        raise InvalidPath(OUTSIDE)
    if not is_canonical(found):
        raise InvalidPath(NOT_UNDER)
    return found


def followed(path: str, links: Mapping[str, str]) -> str | None:
    """Where a path leads when the links on its way are followed: ``""`` for the workspace itself, None for a place
    outside, or nowhere.
    """
    if not links:
        return path
    done: list[str] = []
    todo = path.split("/")[::-1]
    hops = 0
    while todo:
        segment = todo.pop()
        if segment in ("", "."):
            continue
        if segment == "..":
            if not done:
                return None
            done.pop()
            continue
        target = links.get("/".join([*done, segment]))
        if target is None:
            done.append(segment)
            continue
        hops += 1
        if hops > _HOPS:
            return None
        if target.startswith("/"):
            inside = _inside(posixpath.normpath(target))
            if inside is None:
                return None
            done, target = [], inside
        todo += target.split("/")[::-1]
    return "/".join(done)


def _inside(absolute: str) -> str | None:
    """A normalised absolute path relative to the workspace; None for one outside."""
    absolute = "/" + absolute.lstrip("/")  # two slashes at the beginning are kept by POSIX
    root, _, rest = absolute[1:].partition("/")
    return rest if root in ROOTS else None
