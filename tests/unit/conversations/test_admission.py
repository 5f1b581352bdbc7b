"""Who gets a sandbox: order, fairness, eviction, bounds, and nothing left behind by those who go."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from runner.errors import BackendUnavailable, CapacityReached, HostPressure, QueueFull, Stopping
from runner.limits.config import Floors, QueueLimits
from runner.limits.pressure import AT_REST_BYTES, Disk, Host, Pressure
from runner.model import SandboxLimits
from runner.telemetry import metrics
from tests.unit.conversations.admission_lab import Lab, Talk, start

SMALL = replace(SandboxLimits(), memory_bytes=256 << 20)


async def order(lab: Lab, talks: list[Talk]) -> list[str]:
    """Names in the order in which they were served, each using its sandbox for a moment."""
    served: list[str] = []

    async def one(talk: Talk) -> None:
        await talk.ask()
        served.append(talk.key[1])
        await asyncio.sleep(0)
        talk.done()

    await asyncio.gather(*map(one, talks))
    return served


async def test_a_hundred_at_once_are_served_in_the_order_of_arrival() -> None:
    lab = Lab(cap=8)
    names = [f"c{number:03d}" for number in range(100)]
    served = await order(lab, [lab.talk(name) for name in names])
    overtaken = max(served.index(name) - names.index(name) for name in names)
    assert sorted(served) == names
    assert overtaken <= 8 + 2
    assert lab.box.most <= 8
    assert lab.admission.waiting == lab.admission.queued == 0


async def test_who_came_earlier_and_had_to_make_its_conversation_first_stands_before() -> None:
    lab = Lab(cap=1)
    first = await lab.talk("first").ask()
    late, early = lab.talk("late"), lab.talk("early")
    before = time.monotonic()
    tasks = [start(late.ask())]
    await lab.settled()
    tasks.append(start(early.ask(since=before)))
    await lab.settled()
    first.done()
    await tasks[1]
    assert not tasks[0].done()
    early.done()
    await tasks[0]


async def test_tenants_take_turns() -> None:
    lab = Lab(cap=1)
    first = await lab.talk("running").ask()
    greedy = [lab.talk(f"g{number}", "greedy") for number in range(50)]
    served: list[str] = []

    async def one(talk: Talk) -> None:
        served.append((await talk.ask()).key[1])
        talk.done()

    tasks = [asyncio.create_task(one(talk)) for talk in greedy]
    await lab.settled()
    tasks += [asyncio.create_task(one(lab.talk(f"m{number}", "modest"))) for number in range(3)]
    await lab.settled()
    first.done()
    await asyncio.gather(*tasks)
    assert [name for name in served if name[0] == "m"] == ["m0", "m1", "m2"]
    assert served.index("m2") <= 6
    assert [name for name in served if name[0] == "g"] == [talk.key[1] for talk in greedy]


async def test_at_the_cap_the_longest_idle_one_goes_and_never_one_in_use() -> None:
    lab = Lab(cap=3)
    oldest, middle, used = [await lab.talk(name).ask() for name in ("oldest", "middle", "used")]
    for talk in (oldest, middle):
        talk.done()
    used.last_used = 0.0
    await lab.talk("new").ask()
    assert (oldest.evicted, middle.evicted, used.evicted) == (1, 0, 0)


async def test_a_dead_sandbox_goes_before_an_idle_one() -> None:
    lab = Lab(cap=2)
    idle, dead = [await lab.talk(name).ask() for name in ("idle", "dead")]
    for talk in (idle, dead):
        talk.done()
    assert dead.client is not None
    dead.client.alive = False
    await lab.talk("new").ask()
    assert (idle.evicted, dead.evicted) == (0, 1)


async def test_who_waits_is_served_when_a_run_ends() -> None:
    lab = Lab(cap=1)
    first = await lab.talk("first").ask()
    waiting = start(lab.talk("second").ask())
    await lab.settled()
    assert not waiting.done()
    assert (lab.admission.waiting, lab.admission.queued) == (1, 1)
    first.done()
    await waiting
    assert first.evicted == 1


async def test_a_spare_is_handed_out_and_none_is_started() -> None:
    lab = Lab(cap=2)
    spare = lab.box.add_spare()
    talk = await lab.talk("one").ask()
    assert talk.client is spare
    assert lab.box.starts == 0


async def test_a_spare_that_is_being_started_is_waited_for_rather_than_evicting() -> None:
    lab = Lab(cap=2)
    idle = await lab.talk("idle").ask()
    idle.done()
    lab.box.starting = 1
    waiting = start(lab.talk("new").ask())
    await lab.settled()
    assert not waiting.done()
    lab.box.starting = 0
    lab.box.add_spare()
    lab.admission.kick()
    await waiting
    assert (idle.evicted, lab.box.starts) == (0, 1)


async def test_limits_of_its_own_get_a_fresh_sandbox_for_which_a_spare_may_have_to_go() -> None:
    lab = Lab(cap=1)
    spare = lab.box.add_spare()
    talk = await lab.talk("small").ask(own=SMALL)
    assert talk.client is not spare
    assert (spare.alive, lab.box.own, lab.box.live) == (False, [SMALL], 1)


async def test_a_sandbox_with_network_is_never_a_spare() -> None:
    lab = Lab(cap=2)
    spare = lab.box.add_spare()
    talk = await lab.talk("granted").ask(network=True)
    assert talk.client is not spare
    assert (spare.alive, lab.box.networks) == (True, [True])
    assert (await lab.talk("other").ask()).client is spare


async def test_the_queue_is_bounded_and_says_when_to_come_again() -> None:
    lab = Lab(cap=1, limits=QueueLimits(total=3))
    await lab.talk("running").ask()
    waiting = [start(lab.talk(f"w{number}").ask()) for number in range(3)]
    await lab.settled()
    with pytest.raises(QueueFull) as caught:
        await lab.talk("late").ask()
    assert caught.value.fields["limit"] == 3
    assert int(str(caught.value.fields["retry_after_ms"])) >= 1000
    assert "SANDBOX_MAX_QUEUE" in caught.value.detail
    assert lab.admission.queued == 3
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert lab.admission.waiting == lab.admission.queued == 0


async def test_one_conversation_has_a_bound_of_its_own() -> None:
    lab = Lab(limits=QueueLimits(per_conversation=2))
    with (
        pytest.raises(QueueFull, match="SANDBOX_MAX_QUEUE_PER_CONVERSATION") as caught,
        lab.admission.place("t", 2, 4.0),
    ):
        pass
    assert caught.value.fields == {"limit": 2, "retry_after_ms": 12_000}


async def test_who_has_waited_for_its_turn_is_not_sent_away_for_a_full_queue() -> None:
    lab = Lab(cap=1, limits=QueueLimits(total=1))
    first = await lab.talk("first").ask()
    waiting = start(lab.talk("second").ask())
    await lab.settled()
    third = lab.talk("third")
    entitled = asyncio.create_task(lab.admission.acquire(third, time.monotonic() + 5, entitled=True))
    await lab.settled()
    assert not entitled.done()
    with pytest.raises(QueueFull), lab.admission.place("t", 0, 1.0):
        pass
    assert lab.admission.waiting == 2
    first.done()
    (await waiting).done()
    await entitled


async def test_a_tenant_that_fills_the_queue_gives_way_to_others_and_not_to_itself() -> None:
    lab = Lab(cap=1, limits=QueueLimits(total=4))
    first = await lab.talk("running", "greedy").ask()
    greedy = [start(lab.talk(f"g{number}", "greedy").ask()) for number in range(4)]
    await lab.settled()
    with pytest.raises(QueueFull):
        await lab.talk("g4", "greedy").ask()
    modest = [start(lab.talk(f"m{number}", "modest").ask()) for number in range(3)]
    await lab.settled()
    assert [task.done() for task in greedy] == [False, False, True, True]
    assert [task.done() for task in modest] == [False, False, True]  # half each, and no more
    for task in (*greedy[2:], modest[2]):
        with pytest.raises(QueueFull):
            await task
    assert lab.admission.waiting == 4
    first.done()
    for task in (greedy[0], modest[0], greedy[1], modest[1]):
        (await task).done()


async def test_waiting_ends_with_an_honest_answer() -> None:
    lab = Lab(cap=1)
    first = await lab.talk("first").ask()
    with pytest.raises(CapacityReached, match="SANDBOX_MAX_SESSIONS") as caught:
        await lab.talk("second").ask(wait_s=0.02)
    assert (caught.value.fields["limit"], first.evicted) == (1, 0)
    assert lab.admission.waiting == lab.admission.queued == 0
    first.done()
    await lab.talk("third").ask()


@pytest.mark.parametrize("moment", ["waiting", "granted", "starting"])
async def test_who_goes_away_leaves_no_trace(moment: str) -> None:
    lab = Lab(cap=1)
    first = await lab.talk("first").ask()
    leaving = start(lab.talk("leaving").ask())
    behind = start(lab.talk("behind").ask())
    await lab.settled()
    if moment != "waiting":
        lab.box.go.clear()
        first.done()
        for _ in range(1 if moment == "granted" else 20):
            await asyncio.sleep(0)
    leaving.cancel()
    lab.box.go.set()
    first.done()
    talk = await asyncio.wait_for(behind, 5)
    assert leaving.cancelled()
    assert (lab.admission.live, lab.box.live, lab.box.most) == (1, 1, 1)
    talk.done()
    await lab.talk("next").ask()


async def test_a_spare_that_was_granted_to_somebody_who_left_is_ended() -> None:
    lab = Lab(cap=1)
    first = await lab.talk("first").ask()
    leaving = start(lab.talk("leaving").ask())
    await lab.settled()
    first.using = False
    await first.evict()  # this grants a start; the caller has not heard of it yet
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await lab.settled()
    assert (lab.admission.live, lab.box.live) == (0, 0)


async def test_a_start_that_fails_makes_room_for_the_next() -> None:
    lab = Lab(cap=1)
    lab.box.fail = BackendUnavailable("no")
    with pytest.raises(BackendUnavailable):
        await lab.talk("one").ask()
    lab.box.fail = None
    await lab.talk("two").ask()
    assert lab.admission.live == 1


async def test_a_tenant_at_its_limit_waits_for_its_own_and_nobody_waits_for_it() -> None:
    lab = Lab(cap=8, tenant_limit={"small": 1}.get)
    mine = await lab.talk("mine", "small").ask()
    other = await lab.talk("other", "big").ask()
    other.done()
    waiting = start(lab.talk("more", "small").ask())
    await lab.settled()
    assert not waiting.done()
    await lab.talk("third", "big").ask()
    mine.done()
    await waiting
    assert (mine.evicted, other.evicted) == (1, 0)
    with pytest.raises(CapacityReached, match="the limit of the key"):
        await lab.talk("late", "small").ask(wait_s=0.02)


async def test_a_stop_sends_away_who_waits() -> None:
    lab = Lab(cap=1)
    await lab.talk("first").ask()
    waiting = [start(lab.talk(f"w{number}").ask()) for number in range(5)]
    await lab.settled()
    lab.admission.stop()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in found] == [Stopping] * 5
    with pytest.raises(Stopping):
        await lab.talk("late").ask()
    assert not lab.admission.may_grow()


class SmallHost:
    """A host that can hold two sandboxes beside its reserve."""

    lab: Lab

    def __call__(self) -> Host:
        return Host(memory_bytes=Floors().memory_bytes + (2 - self.lab.box.live) * AT_REST_BYTES)

    def disk(self) -> Disk:
        return Disk()


def on_a_small_host() -> Lab:
    host = SmallHost()
    host.lab = Lab(cap=8, pressure=Pressure(Floors(), host, clock=iter(range(1_000_000)).__next__))
    return host.lab


async def test_short_of_memory_idle_sandboxes_end_before_anything_is_refused() -> None:
    lab = on_a_small_host()
    first, second = [await lab.talk(name).ask() for name in ("first", "second")]
    first.done()
    await lab.talk("third").ask()
    assert (first.evicted, second.evicted, lab.box.most) == (1, 0, 2)
    with pytest.raises(HostPressure, match="SANDBOX_MIN_FREE_MEMORY") as caught:
        await lab.talk("fourth").ask()
    assert caught.value.fields["short"] == ["memory"]
    assert caught.value.fields["retry_after_ms"] == 5000
    assert not lab.admission.may_grow()


async def test_starts_under_way_count_as_if_they_had_taken_their_memory() -> None:
    lab = on_a_small_host()
    lab.box.go.clear()
    asked = [start(lab.talk(f"c{number}").ask()) for number in range(4)]
    await lab.settled()
    lab.box.go.set()
    found = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in found] == [Talk, Talk, HostPressure, HostPressure]


async def test_spares_given_and_sandboxes_started_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has limits of its own no spare would do for."""
    told: list[bool] = []
    monkeypatch.setattr(metrics, "pool", lambda *, hit: told.append(hit))
    lab = Lab(cap=4)
    lab.box.add_spare()
    await lab.talk("a").ask()
    await lab.talk("b").ask()
    await lab.talk("c").ask()
    await lab.talk("d").ask(own=SMALL)
    assert told == [True, False, False]


async def test_a_start_is_waited_for_as_long_as_the_request_may_wait() -> None:
    lab = Lab()
    asked = time.monotonic()
    await lab.talk("a").ask(wait_s=7.0)
    (deadline,) = lab.box.deadlines
    assert deadline is not None
    assert 7.0 <= deadline - asked < 12.0


async def test_while_nothing_may_be_started_nobody_waits() -> None:
    lab = Lab()
    lab.box.held = BackendUnavailable("the engine has stopped", retry_after_ms=1)
    with pytest.raises(BackendUnavailable):
        await lab.talk("a").ask()
    assert (lab.box.starts, lab.admission.waiting) == (0, 0)
