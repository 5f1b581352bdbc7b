"""Who owns a live sandbox: one runner at a time, whatever stops, wakes, or has a wrong clock."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import pytest

from runner.errors import NotFound, OwnedElsewhere, StoreFailed
from runner.workspace import keys
from runner.workspace.history import Workspace
from runner.workspace.owners import ALLOWANCE_S, BEAT_S, DEADLINE_S, Owners, new_runner_id
from runner.workspace.workspaces import Workspaces
from tests.unit.workspace.workspace_lab import RUN, Lab, contents, cut, gone, made, memory_lab, put, run
from tests.unit.workspace.workspace_memory import MemoryStore

DEAD_S = DEADLINE_S + ALLOWANCE_S
HOME = keys.incarnation("t", "a", "000001")


@dataclass
class Clock:
    """Monotonic time that all machines share, and a wall clock of one machine that may be set at will."""

    now: float = 1000.0
    wrong_by: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_800_000_000 + self.now + self.wrong_by


@dataclass
class Runner:
    """One of several runners over one store, with its own picture of the conversation."""

    owners: Owners
    space: Workspace
    clock: Clock

    async def acquire(self) -> int:
        return await self.owners.acquire(self.space)


async def runner(lab: Lab, clock: Clock, name: str) -> Runner:
    mine = Clock()
    owners = Owners(lab.store, name, clock.monotonic, lambda: clock.wall() + mine.wrong_by)
    await owners.beat()
    await owners.watch()
    space, _ = await Workspaces(lab.store, lab.config).create("t", "a")
    return Runner(owners, space, mine)


async def two() -> tuple[Runner, Runner, Clock, MemoryStore]:
    lab, store = memory_lab()
    clock = Clock()
    return await runner(lab, clock, "one"), await runner(lab, clock, "two"), clock, store


async def pass_time(clock: Clock, seconds: float, *alive: Runner) -> None:
    """Time goes on; the runners that are alive beat and watch."""
    end = clock.now + seconds
    while clock.now < end:
        clock.now = min(end, clock.now + BEAT_S)
        for one in alive:
            await one.owners.beat()
            await one.owners.watch()


def test_one_owns_and_the_other_is_told() -> None:
    async def scenario() -> None:
        one, two_, clock, _ = await two()
        assert await one.acquire() == 1
        for _ in range(5):
            with pytest.raises(OwnedElsewhere) as caught:
                await two_.acquire()
            assert caught.value.fields["runner"] == "one"
            assert 1000 <= int(str(caught.value.fields["retry_after_ms"])) <= DEAD_S * 1000
            assert await one.acquire() == 1
            await pass_time(clock, DEAD_S, one, two_)
        await one.owners.release(one.space)
        assert one.space.fence is None
        assert await two_.acquire() == 3
        with pytest.raises(OwnedElsewhere):
            await one.acquire()

    run(scenario())


def test_takeover_at_the_deadline_and_not_before() -> None:
    async def scenario() -> None:
        one, two_, clock, _ = await two()
        await one.acquire()
        await pass_time(clock, 7 * BEAT_S, one, two_)
        await pass_time(clock, DEAD_S - 0.01, two_)
        with pytest.raises(OwnedElsewhere) as caught:
            await two_.acquire()
        assert caught.value.fields["retry_after_ms"] == 1000
        await pass_time(clock, 0.02, two_)
        assert await two_.acquire() == 2

    run(scenario())


def test_one_that_has_just_started_watches_first() -> None:
    """It cannot know when a heartbeat was written, as it trusts no wall clock."""

    async def scenario() -> None:
        lab, _ = memory_lab()
        clock = Clock()
        await (await runner(lab, clock, "one")).acquire()
        await pass_time(clock, 10 * DEAD_S)
        third = await runner(lab, clock, "three")
        with pytest.raises(OwnedElsewhere):
            await third.acquire()
        await pass_time(clock, DEAD_S, third)
        assert await third.acquire() == 2

    run(scenario())


def test_a_clean_stop_gives_up_at_once() -> None:
    async def scenario() -> None:
        one, two_, _, store = await two()
        await one.acquire()
        await one.owners.close()
        await one.owners.close()
        assert not [key for key in store.objects_now if key.startswith("t/system/r/runner/one/")]
        assert await two_.acquire() == 2

    run(scenario())


@pytest.mark.parametrize("seed", range(20))
def test_clocks_that_jump_make_no_second_owner(seed: int) -> None:
    """As long as the owner beats, no setting of any wall clock by an hour lets another in."""

    async def scenario() -> None:
        dice = random.Random(seed)
        one, two_, clock, _ = await two()
        await one.acquire()
        for _ in range(30):
            for machine in (one, two_):
                machine.clock.wrong_by += dice.choice((0, 0, -3600, 3600))
            await pass_time(clock, dice.choice((1, 5, BEAT_S, DEAD_S, 3 * DEAD_S)), one, two_)
            with pytest.raises(OwnedElsewhere):
                await two_.acquire()
            assert await one.acquire() == 1
        for machine in (one, two_):
            machine.clock.wrong_by += dice.choice((-3600, 3600))
        await pass_time(clock, DEAD_S, two_)
        assert await two_.acquire() == 2  # and a dead one is dead for all clocks

    run(scenario())


def test_a_sleeper_who_wakes_can_commit_no_more() -> None:
    async def scenario() -> None:
        one, two_, clock, _ = await two()
        await one.acquire()
        await cut(one.space, "a", b"before")
        late = await made(one.space, "late", b"what the sleeper's run made")
        await pass_time(clock, DEAD_S + 1, two_)
        assert await two_.acquire() == 2
        assert await contents(two_.space) == {"a": b"before"}  # it has seen what the sleeper stored
        await cut(two_.space, "b", b"theirs")
        with pytest.raises(OwnedElsewhere) as caught:
            await one.space.commit([late], synced_seq=0, cause=RUN)
        assert caught.value.fields["runner"] == "two"
        with pytest.raises(OwnedElsewhere):
            await one.acquire()
        assert one.space.fence is None
        await put(one.space, "c", b"an upload may come by any runner")
        await two_.acquire()
        assert set(await contents(two_.space)) == {"a", "b", "c"}

    run(scenario())


def test_a_commit_under_way_when_the_sandbox_is_taken() -> None:
    """Refused when the other has committed, else it was first and the other builds on it: never both blind."""

    async def scenario() -> None:
        one, two_, _, store = await two()
        await one.acquire()
        await cut(one.space, "a", b"1")
        change = await made(one.space, "a", b"2")

        async def take() -> None:
            await store.create(keys.numbered(keys.owners(HOME), 2), b'{"runner":"two"}')
            await two_.space.refresh()
            await two_.space.commit([gone("a")], synced_seq=0, cause=RUN)

        original = one.space._ledger.append_version

        async def overtaken(*arguments: object) -> None:
            await take()
            await original(*arguments)  # type: ignore[arg-type]

        one.space._ledger.append_version = overtaken  # type: ignore[method-assign, assignment]
        with pytest.raises(OwnedElsewhere):
            await one.space.commit([change], synced_seq=0, cause=RUN)
        await one.space.refresh()
        assert await contents(one.space) == {}

    run(scenario())


def test_a_commit_asks_in_no_further_trip() -> None:
    async def scenario() -> None:
        one, _, _, store = await two()

        async def trips(path: str) -> int:
            change = await made(one.space, path, path.encode())
            before = store.trips
            await one.space.commit([change], synced_seq=0, cause=RUN)
            return store.trips - before

        free = await trips("a")
        await one.acquire()
        assert await trips("b") == free

    run(scenario())


def test_of_many_who_ask_one_owns() -> None:
    async def scenario() -> None:
        lab, _ = memory_lab()
        clock = Clock()
        many = [await runner(lab, clock, f"r{number}") for number in range(6)]
        for _ in range(4):
            said = await asyncio.gather(*(one.acquire() for one in many), return_exceptions=True)
            winners = [one for one, got in zip(many, said, strict=True) if isinstance(got, int)]
            assert len(winners) == 1
            assert all(isinstance(got, (int, OwnedElsewhere)) for got in said)
            await pass_time(clock, 2 * DEAD_S, *(one for one in many if one is not winners[0]))
            many.remove(winners[0])

    run(scenario())


def test_who_cannot_beat_takes_nothing() -> None:
    async def scenario() -> None:
        one, two_, clock, store = await two()

        def full(key: str) -> None:
            if "/runner/one/" in key:
                raise StoreFailed("full")

        store.before = full
        await pass_time(clock, BEAT_S, two_)
        assert await one.acquire() == 1  # the last beat is young enough
        await pass_time(clock, 2 * BEAT_S, two_)
        with pytest.raises(StoreFailed):
            await one.acquire()
        await pass_time(clock, DEAD_S, two_)
        assert await two_.acquire() == 2

    run(scenario())


def test_a_store_of_one_runner_needs_no_heartbeat() -> None:
    async def scenario() -> None:
        lab, store = memory_lab()
        for life in range(1, 4):  # each is killed, and the next one takes over at once
            owners = Owners(store, f"life{life}")
            await owners.start(exclusive=True)
            space = await lab.again() if life > 1 else await lab.space()
            assert await owners.acquire(space) == life
            await owners.release(space)
            assert space.fence is None
            assert await owners.acquire(space) == life  # still ours: nothing was written
            await cut(space, "a", b"%d" % life)
        assert not [key for key in store.objects_now if "/r/" in key]

    run(scenario())


def test_it_beats_by_itself_and_stops() -> None:
    async def scenario() -> None:
        lab, store = memory_lab()
        owners = Owners(store, new_runner_id())
        await owners.start()
        folder = keys.records("system", "runner", owners.runner_id)
        assert await owners.acquire(await lab.space()) == 1
        assert [key for key in store.objects_now if key.startswith(folder)] == [keys.numbered(folder, 1)]
        for _ in range(5):
            await owners.beat()
        assert len([key for key in store.objects_now if key.startswith(folder)]) == 2
        await owners.close()
        assert not [key for key in store.objects_now if key.startswith(folder)]

    run(scenario())


def test_what_lies_around_does_not_grow() -> None:
    async def scenario() -> None:
        one, two_, clock, store = await two()
        for turn in range(100):
            who = (one, two_)[turn % 2]
            await who.acquire()
            await who.owners.release(who.space)
        kept = [key for key in store.objects_now if "/o/" in key]
        assert len(kept) <= 64
        await one.acquire()
        for number in range(30):  # runners that were killed
            await Owners(store, f"dead{number}", clock.monotonic).beat()
        await pass_time(clock, 2 * 3600, one)
        assert len([key for key in store.objects_now if "/r/runner/dead" in key]) == 0

    run(scenario())


def test_a_stale_fence_is_seen_when_its_record_is_gone() -> None:
    async def scenario() -> None:
        one, two_, clock, store = await two()
        await one.acquire()
        change = await made(one.space, "late", b"")
        await pass_time(clock, DEAD_S + 1, two_)
        for _ in range(80):
            await two_.acquire()
            await two_.owners.release(two_.space)
        numbered = [keys.numbered(keys.owners(HOME), number) for number in (1, 2)]
        assert not any(key in store.objects_now for key in numbered)
        with pytest.raises(OwnedElsewhere):
            await one.space.commit([change], synced_seq=0, cause=RUN)

    run(scenario())


def test_purged_and_damaged() -> None:
    async def scenario() -> None:
        one, two_, _, store = await two()
        await one.acquire()
        for data in (b"{", b"{}", b'{"runner":"../x"}', b'{"runner":7}'):
            store.objects_now[keys.numbered(keys.owners(HOME), 1)] = data
            with pytest.raises(StoreFailed) as caught:
                await two_.acquire()
            assert "o/000000000001.json" in caught.value.detail
        store.objects_now["t/system/r/runner/-strange/x"] = b""
        await two_.owners.watch()
        await one.space.purge()
        await one.owners.release(one.space)
        for who in (one, two_):
            await who.space.is_purged()
            with pytest.raises(NotFound):
                await who.acquire()

    run(scenario())
