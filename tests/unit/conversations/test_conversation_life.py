"""A conversation's turn, its sandbox and its owner record: taken in order, given back on every way out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from runner.conversations.conversation import Conversation
from runner.conversations.settings import ConversationSettings
from runner.errors import BackendUnavailable, Busy, NotFound, OwnedElsewhere, QueueFull, Stopping
from runner.limits.config import LimitsConfig, QueueLimits
from runner.model import SandboxLimits
from runner.workspace.config import WorkspaceConfig
from runner.workspace.owners import Owners
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces
from tests.unit.conversations.admission_lab import Client, Lab


class Ownership:
    """Stands in for the records of owners."""

    def __init__(self) -> None:
        self.held = 0
        self.elsewhere = False

    async def acquire(self, _: object) -> int:
        if self.elsewhere:
            raise OwnedElsewhere("another runner has it")
        self.held = 1
        return 1

    async def release(self, _: object) -> None:
        self.held = 0


class Place:
    """A conversation over a real store, with sandboxes and owners that cost nothing."""

    def __init__(self, workspace: Any, queue: QueueLimits) -> None:
        self.lab = Lab(cap=1, limits=queue)
        self.owners = Ownership()
        self.limits = LimitsConfig(SandboxLimits(), queue=queue)
        self.talk = Conversation(
            workspace, self.limits, self.lab.admission, cast(Owners, self.owners), 1800.0, known=False
        )

    @property
    def state(self) -> tuple[int, int, int]:
        """Sandboxes that admission knows, that are there, and owner records."""
        return self.lab.admission.live, self.lab.box.live, self.owners.held


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr(Client, "put", nothing, raising=False)
    monkeypatch.setattr(Client, "remove", nothing, raising=False)
    config = WorkspaceConfig(tmp_path)
    store = await open_store(config)
    workspace, _ = await Workspaces(store, config).create("default", "c")
    yield Place(workspace, QueueLimits(per_conversation=2, timeout_s=0.05))
    await store.close()


async def test_owner_and_slot_live_as_long_as_the_sandbox(place: Place) -> None:
    async with place.talk.held():
        await place.talk.live()
        assert place.state == (1, 1, 1)
        await place.talk.live()
        assert place.lab.box.starts == 1
    assert place.talk.evictable
    await place.talk.evict()
    assert place.state == (0, 0, 0)


async def test_a_sandbox_that_is_another_runners_now_is_dropped(place: Place) -> None:
    async with place.talk.held():
        await place.talk.live()
        place.owners.elsewhere = True
        with pytest.raises(OwnedElsewhere):
            await place.talk.live()
    assert place.state == (0, 0, 0)


async def test_a_start_that_fails_gives_the_owner_record_back(place: Place) -> None:
    place.lab.box.fail = BackendUnavailable("no")
    async with place.talk.held():
        with pytest.raises(BackendUnavailable):
            await place.talk.live()
    assert place.state == (0, 0, 0)


async def test_a_dead_sandbox_is_replaced(place: Place) -> None:
    async with place.talk.held():
        mirror = await place.talk.live()
        await mirror.client.destroy()
        assert await place.talk.live() is not mirror
    assert place.state == (1, 1, 1)


async def test_its_own_queue_is_bounded_in_length_and_time(place: Place) -> None:
    async with place.talk.held():
        waiting = [asyncio.create_task(_hold(place.talk)) for _ in range(2)]
        await place.lab.settled()
        with pytest.raises(QueueFull, match="SANDBOX_MAX_QUEUE_PER_CONVERSATION"):
            await _hold(place.talk)
        found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in found] == [Busy, Busy]
    assert all(int(str(cast(Busy, error).fields["retry_after_ms"])) >= 1000 for error in found)
    assert (place.talk.lock.locked(), place.lab.admission.waiting) == (False, 0)


async def test_waiting_for_the_turn_counts_against_waiting_for_the_sandbox(place: Place) -> None:
    await place.lab.talk("other").ask()
    began = time.monotonic()
    async with place.talk.held(asked_at=began - 1000.0):
        with pytest.raises(Exception, match="stayed busy"):
            await place.talk.live()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("how", ["stop", "purge"])
async def test_who_waits_is_sent_away(place: Place, how: str) -> None:
    async with place.talk.held():
        waiting = asyncio.create_task(_hold(place.talk))
        await place.lab.settled()
        if how == "stop":
            place.lab.admission.stop()
            place.talk.lock.refuse(place.lab.admission.stopped)
        else:
            place.talk.closing = True
            await place.talk.stop()
        with pytest.raises(Stopping if how == "stop" else NotFound):
            await waiting
    with pytest.raises(Stopping if how == "stop" else NotFound):
        await _hold(place.talk)


async def test_a_workspace_takes_the_limits_of_its_conversation(place: Place) -> None:
    place.talk.apply(ConversationSettings().changed({"limits": {"workspace_bytes": 1 << 20}}))
    assert place.talk.workspace.max_bytes == 1 << 20
    place.talk.apply(ConversationSettings())
    assert place.talk.workspace.max_bytes == 512 << 20


async def _hold(talk: Conversation) -> None:
    async with talk.held():
        pass
