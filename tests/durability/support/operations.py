"""The operations of a store whose every step is killed: a base that they start from, and each by its name.

They use what the workspace layer offers to its callers and nothing below it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from runner.errors import Conflict, NotFound, StoreFailed
from runner.workspace.collect import Collector
from runner.workspace.history import Workspace
from runner.workspace.manifest import Cause
from tests.unit.workspace.workspace_lab import Lab, change, cut, gone, lab, made, put

RUN_FILES = {"outputs/a": b"first", "outputs/deep/b": b"second" * 50_000}


async def base(at: Lab) -> None:
    """Two conversations with versions and drafts, and a third that nobody touches."""
    for name in ("one", "two", "bystander"):
        space = await at.space(name)
        await put(space, "uploads/kept", f"kept of {name}".encode())
        await cut(space, "made", b"by a run")
        await put(space, "uploads/later", b"later")
        await cut(space, "made", b"by the next run")
        await space.begin_execution("0" * 32, {"state": "running"})


async def commit(at: Lab) -> None:
    """A run that made two files, changed one and removed one."""
    space = await _space(at)
    changes = [await made(space, path, data) for path, data in RUN_FILES.items()]
    changed = (await made(space, "made", b"changed")).entry
    assert changed is not None
    changes += [change(changed, "modified"), gone("uploads/later")]
    await space.commit(changes, synced_seq=space.draft_seq, cause=Cause("run", execution_id="x9"))


async def upload(at: Lab) -> None:
    """One file into a folder that is new."""
    await put(await _space(at), "new/folder/file", b"uploaded" * 1000)


async def upload_many(at: Lab) -> None:
    """Ten files of one request: all or nothing."""
    space = await _space(at)
    stagings = []
    for number in range(10):
        staging = space.stage()
        await staging.write(f"many {number}".encode() * 100)
        stagings.append((f"many/{number}", staging))
    await space.put_many(stagings)


async def move(at: Lab) -> None:
    """A folder with all below it."""
    space = await _space(at)
    with suppress(NotFound):
        await space.move("uploads", "moved")


async def delete(at: Lab) -> None:
    """One file."""
    space = await _space(at)
    with suppress(NotFound):
        await space.delete("uploads/kept")


async def restore(at: Lab) -> None:
    """Back to the first version."""
    await (await _space(at)).restore(1)


async def purge(at: Lab) -> None:
    """A conversation with all that it has."""
    await at.spaces.purge("t", "one")


async def create(at: Lab) -> None:
    """A conversation that there was not."""
    await at.space("new")


async def fork(at: Lab) -> None:
    """A new conversation from a version."""
    with suppress(Conflict):
        await at.spaces.fork(await _space(at), 1, "forked")


async def claim(at: Lab) -> None:
    """An Idempotency-Key."""
    await (await _space(at)).claim("key", {"execution_id": "1" * 32, "request": "2" * 64})


async def begin(at: Lab) -> None:
    """A run begins."""
    with suppress(Conflict):
        await (await _space(at)).begin_execution("1" * 32, {"state": "running"})


async def end(at: Lab) -> None:
    """A run that the base has begun ends."""
    await (await _space(at)).end_execution("0" * 32, {"outcome": "ok"})


async def crowded(at: Lab) -> None:
    """The base, and what a collection removes: old versions and drafts, a purged conversation, a blob of nobody."""
    await base(at)
    many = await at.space("crowded")
    for number in range(34):
        await put(many, f"upload-{number % 3}", f"{number}".encode())
        await cut(many, "made", f"made {number}".encode())
    over = await at.space("over")
    await cut(over, "made", b"over")
    await at.spaces.purge("t", "over")
    await made(many, "nobody", b"adopted, and no version names it")


async def collect(at: Lab) -> None:
    """A collection a year later, which keeps as little as there may be."""

    async def at_once(_: float) -> None:
        return

    config = replace(at.config, keep_versions=1, keep_days=1)
    later = time.time() + 365 * 86_400
    report = await Collector(at.store, config, clock=lambda: later, sleep=at_once, commit_s=0, pause_s=0).run_once()
    if report.failed:
        raise StoreFailed("The collection left something.", cause=repr(report))


async def records(at: Lab) -> dict[str, str]:
    """What is on record of the runs of the first conversation, as text."""
    found: dict[str, str] = {}
    space = await at.spaces.find("t", "one")
    if space is None:
        return found
    for name in ("0" * 32, "1" * 32):
        found[f"record {name[0]}"] = repr(await space.read_execution(name))
    return {**found, "claim": repr(await space.read_claim("key"))}


Operation = Callable[[Lab], Awaitable[None]]
OPERATIONS: Mapping[str, Operation] = {
    operation.__name__: operation
    for operation in (commit, upload, upload_many, move, delete, restore, create, fork, claim, begin, end, purge)
}  # purge is the last: after it the conversation is not there any more


async def _space(at: Lab) -> Workspace:
    found = await at.spaces.find("t", "one")
    if found is None:
        raise NotFound("The conversation was purged.")
    return found


def recorded(folder: Path) -> dict[str, str]:
    """``records`` of a store that is opened for it."""

    async def all_of_it() -> dict[str, str]:
        async with lab(folder) as at:
            return await records(at)

    return asyncio.run(asyncio.wait_for(all_of_it(), 60))


def perform(folder: Path, *work: Operation) -> None:
    """Open the store, do the work, close it."""

    async def all_of_it() -> None:
        async with lab(folder) as at:
            for operation in work:
                await operation(at)

    asyncio.run(asyncio.wait_for(all_of_it(), 60))
