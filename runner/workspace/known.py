"""Finds content by its hash in what one conversation has: its current files and all versions that are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from runner.errors import InvalidRequest
from runner.model import FileEntry
from runner.workspace.aside import FEW, aside
from runner.workspace.codec import decode_manifest
from runner.workspace.encoding import guarded, inflate
from runner.workspace.ledger import Ledger
from runner.workspace.paths import shown
from runner.workspace.state import State

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def check_sha256(value: str) -> str:
    """``value`` when it is a SHA-256 in lower-case hex, else ``InvalidRequest``."""
    if _SHA256.fullmatch(value):
        return value
    raise InvalidRequest(f"{shown(value)} is not a SHA-256; send 64 digits of 0-9 a-f.")


async def find_content(state: State, ledger: Ledger, sha256: str) -> tuple[str, int] | None:
    """A blob with this content, and its size in bytes; None when nothing that is kept names one.

    Old versions are looked through as bytes: only one that contains the hash is decoded.
    """
    found = state.blobs.find(sha256, state.head.version)
    if found is not None:
        return found
    pictures = state.tree.files, state.head.files
    found = await aside(sum(map(len, pictures)), _among, pictures, sha256)
    if found is not None:
        return found
    async for page in ledger.stored(state.head.version - 1):
        found = await aside(FEW + 1, _look, page, sha256)
        if found is not None:
            return found
    return None


def _among(pictures: Sequence[Mapping[str, FileEntry]], sha256: str) -> tuple[str, int] | None:
    for files in pictures:
        for entry in files.values():
            if entry.sha256 == sha256:
                return entry.blob, entry.size
    return None


def _look(page: list[tuple[str, bytes]], sha256: str) -> tuple[str, int] | None:
    """A manifest holds what it changed, and a whole one all: together they name every file of every version."""
    wanted = sha256.encode()
    for key, data in page:
        if wanted in guarded(partial(inflate, data), key):
            for entry in decode_manifest(data, key).put:
                if entry.sha256 == sha256:
                    return entry.blob, entry.size
    return None
