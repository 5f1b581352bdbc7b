"""What callers are told of conversations: one in full, many in pages that can be filtered by label."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from runner.agent.protocol import Json
from runner.conversations.conversation import Conversation
from runner.conversations.settings import ConversationSettings
from runner.workspace.workspaces import Workspaces

SCAN: Final = 2000  # conversations looked at by one call, however few of them match
_READS_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Description:
    """A conversation. ``limits`` are those in effect; where they apply to the ``next_sandbox`` only, the present
    one still has others.
    """

    id: str
    labels: Mapping[str, str]
    version: int
    files: int
    size_bytes: int
    live: bool
    idle_ttl_ms: int
    limits: Json
    limits_apply: Literal["now", "next_sandbox"]
    network: bool = False

    @classmethod
    def of(cls, conversation: Conversation) -> Description:
        """As it is now."""
        workspace, effective = conversation.workspace, conversation.effective
        stale = conversation.alive and conversation.started_with != effective.sandbox
        return cls(
            id=workspace.id,
            labels=conversation.settings.labels,
            version=workspace.version,
            files=len(workspace.files),
            size_bytes=workspace.size_bytes,
            live=conversation.alive,
            idle_ttl_ms=effective.idle_ttl_ms,
            limits=effective.json(),
            limits_apply="next_sandbox" if stale else "now",
            network=conversation.settings.network,
        )


@dataclass(frozen=True, slots=True)
class Item:
    """A conversation in a list."""

    id: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Page:
    """``next`` goes into ``after`` of the following call; None at the end. A page may hold less than was asked for."""

    items: list[Item]
    next: str | None


async def page(
    workspaces: Workspaces, tenant: str, after: str | None, limit: int, labels: Mapping[str, str] | None = None
) -> Page:
    """Conversations in order, greater than ``after``, that have all of ``labels``. Nothing of their files is read."""
    items: list[Item] = []
    scanned, last = 0, after
    while scanned < SCAN:
        some = min(limit - len(items) if not labels else max(limit, 100), SCAN - scanned)
        ids = await workspaces.list(tenant, last, some)
        for item in await _with_labels(workspaces, tenant, ids):
            last, scanned = item.id, scanned + 1
            if all(item.labels.get(name) == value for name, value in (labels or {}).items()):
                items.append(item)
            if len(items) == limit:
                return Page(items, last)
        if len(ids) < some:
            return Page(items, None)
    return Page(items, last)


async def _with_labels(workspaces: Workspaces, tenant: str, ids: list[str]) -> list[Item]:
    slots = asyncio.Semaphore(_READS_AT_ONCE)

    async def one(identifier: str) -> Item:
        async with slots:
            stored = await workspaces.settings_of(tenant, identifier)
        return Item(identifier, ConversationSettings.stored(stored).labels)

    return await asyncio.gather(*map(one, ids))
