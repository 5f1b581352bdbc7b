"""When sandboxes end and when conversations are forgotten."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.conversations.conversation import Conversation
from runner.conversations.reaper import FORGET_S, Reaper
from runner.conversations.residents import Residents


@dataclass(eq=False)
class Talk:
    """As much of a conversation as the reaper looks at."""

    key: tuple[str, str] = ("t", "c")
    last_used: float = 0.0
    asked_for: float = 0.0
    mirror: Any = None
    alive: bool = True
    busy: bool = False
    memorable: bool = False
    workspace: Any = field(default_factory=lambda: SimpleNamespace(purged=False, id="c"))
    effective: Any = field(default_factory=lambda: SimpleNamespace(idle_ttl_ms=10_000))
    ended: list[str] = field(default_factory=list)
    fails: bool = False

    @property
    def evictable(self) -> bool:
        return self.mirror is not None and not self.busy

    async def evict(self, reason: str) -> None:
        if self.fails:
            raise RuntimeError("no")
        self.mirror = None
        self.ended.append(reason)


class Lab:
    """A reaper with a clock of its own."""

    def __init__(self) -> None:
        self.now, self.sweeps = 0.0, 0
        self.residents = Residents()
        self.reaper = Reaper(self.residents, self._swept, clock=lambda: self.now)

    def _swept(self) -> None:
        self.sweeps += 1

    def add(self, **state: Any) -> Talk:
        talk = Talk(**state)
        self.residents.add(cast(Conversation, talk))
        return talk

    async def at(self, now: float) -> None:
        self.now = now
        await self.reaper.sweep()


async def test_a_sandbox_ends_after_the_idle_time_of_its_conversation() -> None:
    lab = Lab()
    one = lab.add(key=("t", "one"), mirror=1)
    other = lab.add(key=("t", "other"), mirror=1, effective=SimpleNamespace(idle_ttl_ms=1000))
    await lab.at(5.0)
    assert (one.ended, other.ended) == ([], ["idle"])
    await lab.at(10.5)
    assert one.ended == ["idle"]
    assert lab.sweeps == 2


async def test_looking_at_a_conversation_does_not_keep_its_sandbox() -> None:
    lab = Lab()
    talk = lab.add(mirror=1)
    talk.asked_for = 10.0
    await lab.at(10.5)
    assert talk.ended == ["idle"]


async def test_one_in_use_stays_and_a_dead_one_goes_at_once() -> None:
    lab = Lab()
    used = lab.add(key=("t", "used"), mirror=1, busy=True)
    dead = lab.add(key=("t", "dead"), mirror=1, alive=False)
    await lab.at(100.0)
    assert (used.ended, dead.ended) == ([], ["idle"])
    again = lab.add(key=("t", "again"), mirror=1, alive=False, last_used=100.0)
    await lab.at(101.0)
    assert again.ended == ["sandbox_lost"]


async def test_one_that_cannot_be_ended_does_not_keep_the_others() -> None:
    lab = Lab()
    lab.add(key=("t", "stuck"), mirror=1, fails=True)
    other = lab.add(key=("t", "other"), mirror=1)
    await lab.at(100.0)
    assert other.ended == ["idle"]


@pytest.mark.parametrize(("memorable", "kept_s"), [(False, FORGET_S), (True, 3600.0)])
async def test_without_a_sandbox_it_is_forgotten_unless_there_is_something_to_tell(
    memorable: bool, kept_s: float
) -> None:
    lab = Lab()
    lab.add(memorable=memorable, effective=SimpleNamespace(idle_ttl_ms=3_600_000))
    await lab.at(kept_s - 1)
    gc.collect()
    assert len(lab.residents) == 1
    await lab.at(kept_s + 1)
    gc.collect()
    assert len(lab.residents) == 0


async def test_what_is_forgotten_while_somebody_uses_it_is_found_again() -> None:
    lab = Lab()
    held = lab.add()
    await lab.at(FORGET_S + 1)
    assert lab.residents.get(("t", "c")) is cast(Conversation, held)
    newer = cast(Conversation, Talk())
    assert lab.residents.add(newer) is cast(Conversation, held)
    held.workspace.purged = True
    assert lab.residents.get(("t", "c")) is None
    assert lab.residents.add(newer) is newer
