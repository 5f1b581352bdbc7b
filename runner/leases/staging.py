"""Puts a run's input files into its workspace; what is there already as it is costs nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final

from runner.workspace.history import Workspace

_LARGE: Final = 1 << 20  # hashing more than this holds up everybody else


async def stage(workspace: Workspace, files: Mapping[str, bytes]) -> None:
    """Store ``files`` at the top of the workspace, durably. Raises what ``Workspace.put_many`` raises."""
    if not files:
        return
    there = (await workspace.picture(None)).files
    changed: dict[str, bytes] = {}
    for name, content in files.items():
        known = there.get(name)
        if known is None or known.size != len(content) or known.sha256 != await _sha256(content):
            changed[name] = content
    async with AsyncExitStack() as stack:
        items = []
        for name, content in changed.items():
            staging = await stack.enter_async_context(workspace.stage(len(content)))
            await staging.write(content)
            items.append((name, staging))
        await workspace.put_many(items)


async def _sha256(content: bytes) -> str:
    if len(content) > _LARGE:
        return (await asyncio.to_thread(hashlib.sha256, content)).hexdigest()
    return hashlib.sha256(content).hexdigest()
