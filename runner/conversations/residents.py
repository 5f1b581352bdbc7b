"""The conversations that this process has in memory: one object for each, for as long as anybody uses it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from weakref import WeakValueDictionary

from runner.conversations.conversation import Conversation

Key = tuple[str, str]


class Residents:
    """Keeps what was used lately. What is forgotten is found again while somebody still holds it, so that there are
    never two objects for one conversation.
    """

    def __init__(self) -> None:
        self._kept: dict[Key, Conversation] = {}
        self._seen: WeakValueDictionary[Key, Conversation] = WeakValueDictionary()

    def __iter__(self) -> Iterator[Conversation]:
        return iter(list(self._seen.values()))

    def __len__(self) -> int:
        return len(self._seen)

    def get(self, key: Key) -> Conversation | None:
        """A conversation by tenant and id, unless it was purged. Being asked for keeps it in memory, but its sandbox
        only lives on when something is run.
        """
        conversation = self._seen.get(key)
        if conversation is None or conversation.workspace.purged:
            return None
        conversation.asked_for = time.monotonic()
        self._kept[key] = conversation
        return conversation

    def add(self, conversation: Conversation) -> Conversation:
        """Keep one that is new here; gives the one that is known under its name already, if there is one."""
        known = self.get(conversation.key)
        if known is not None:
            return known
        self._kept[conversation.key] = self._seen[conversation.key] = conversation
        return conversation

    def forget(self, conversation: Conversation) -> None:
        """Keep it no longer; what it had in memory goes when nobody uses it any more."""
        if self._kept.get(conversation.key) is conversation:
            del self._kept[conversation.key]
