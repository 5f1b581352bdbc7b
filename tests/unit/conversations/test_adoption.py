"""A start of the service after one that was killed: variables, files and runs of its sandboxes are taken over."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.conversations import adoption
from runner.conversations.runs import Running
from runner.errors import BackendUnavailable, EventsDropped, NotFound
from runner.interpreter.client import SandboxClient
from runner.model import InterpreterState, Outcome
from runner.workspace.base import Store
from runner.workspace.config import WorkspaceConfig
from runner.workspace.history import Workspace
from runner.workspace.workspaces import Workspaces
from tests.unit.conversations.survivors_lab import Engine, Start, T

WAIT = """
import os, time
with open('outputs/runs.txt', 'a') as file: file.write('ran ')
print('waiting', flush=True)
while not os.path.exists({gate!r}): time.sleep(0.005)
y = 2
print('over')
"""
Starts = Callable[..., Start]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """Where sandboxes run."""
    made = Engine(tmp_path / "boxes")
    yield made
    made.close()


@pytest.fixture
def starts(tmp_path: Path, store: Store, engine: Engine) -> Starts:
    """One start of the service after the other."""
    numbers = iter(range(1, 10))
    return lambda **config: Start(tmp_path, store, engine, next(numbers), **config)


@pytest.fixture
def waiting(tmp_path: Path) -> str:
    """A cell that waits for ``go_on``."""
    return WAIT.format(gate=str(tmp_path / "gate"))


@pytest.fixture
def go_on(tmp_path: Path) -> Callable[[], None]:
    """Let it end."""
    return (tmp_path / "gate").touch


async def ends(workspace: Workspace, execution_id: str) -> str | None:
    """The outcome that the store has of a run."""
    record = await workspace.read_execution(execution_id)
    return None if record is None or record.end is None else str(record.end["result"]["outcome"])


async def text_of(workspace: Workspace, path: str) -> bytes:
    """A stored file."""
    stream = await workspace.open(workspace.files[path])
    return b"".join([chunk async for chunk in stream])


async def killed_at(first: Start, running: Running, key: str) -> None:
    """Kill a start in the moment in which it is about to do something with a key of the store."""
    first.store.stops.add(key)
    async with asyncio.timeout(60):
        await first.store.reached.wait()
    assert not running.log.ended
    await first.kill()


async def test_an_idle_conversation_keeps_its_variables_and_files(starts: Starts, engine: Engine) -> None:
    first = await starts().begun()
    await first.upload("c", "a.txt", b"1")
    await first.run("c", "x = open('a.txt').read(); open('b.txt', 'w').write('2')")
    await first.upload("c", "draft.txt", b"3")
    await first.kill()
    async with starts() as second:
        assert (second.service.live, (await second.talk("c")).alive) == (1, True)
        await second.upload("c", "late.txt", b"4")
        result = await second.run("c", "import os; print(x, sorted(n for n in os.listdir() if '.' in n))")
        files = "['a.txt', 'b.txt', 'draft.txt', 'late.txt']"
        assert (result.stdout.text, result.interpreter) == (f"1 {files}\n", InterpreterState.KEPT)
        assert (result.files, result.version) == ([], 1)
        await second.service.purge(T, "c")
    assert (engine.running, list((engine.folder.parent / "sandboxes").glob("*"))) == (0, [])


async def test_a_run_goes_on_and_what_it_changed_is_stored(
    starts: Starts, waiting: str, go_on: Callable[[], None]
) -> None:
    first = await starts().begun()
    await first.run("c", "x = 1")
    running = await first.begin("c", waiting, key="k")
    await first.said(running, "waiting")
    seen = running.log.seq
    await first.kill()
    second = await starts().begun()  # and once more
    await second.kill()
    async with starts() as third:
        known = await third.service.execution(T, "c", running.execution_id)
        again = await third.begin("c", waiting, key="k")
        assert (again.execution_id, again.replayed, known.log.ended) == (running.execution_id, True, False)
        await third.upload("c", "outputs/runs.txt", b"an upload keeps its name")
        go_on()
        result = await known.result()
        assert (result.outcome, result.stdout.text) == (Outcome.OK, "waiting\nover\n")
        renamed = [(one.path, one.renamed_from) for one in result.files]
        assert renamed == [("outputs/runs (run 1).txt", "outputs/runs.txt")]
        assert [event.kind async for event in known.log.follow(seen)] == ["stdout", "file", "done"]
        workspace = (await third.talk("c")).workspace
        assert await text_of(workspace, "outputs/runs (run 1).txt") == b"ran "
        assert await ends(workspace, running.execution_id) == "ok"
        after = await third.run("c", "print(x, y, open('outputs/runs.txt').read())")
        assert after.stdout.text == "1 2 an upload keeps its name\n"


@pytest.mark.parametrize("at", ["v/", ".end.json", "acknowledgement"])
async def test_a_run_that_ended_as_the_service_died_has_one_outcome(
    starts: Starts, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its version was written, before its record was, and before the sandbox was told of either."""
    first = await starts().begun()
    await first.run("c", "x = []")
    code = "x.append(1); open('outputs/n.txt', 'a').write('1'); print(x)"
    if at == "acknowledgement":
        with monkeypatch.context() as patch:
            patch.setattr(SandboxClient, "acknowledge", lambda *_: None)
            running = await first.begin("c", code)
            await running.result()
            await first.kill()
    else:
        running = await first.begin("c", code)
        await killed_at(first, running, at)
    async with starts() as second:
        workspace = (await second.talk("c")).workspace
        result = await (await second.service.execution(T, "c", running.execution_id)).result()
        assert (result.outcome, result.stdout.text, result.version) == (Outcome.OK, "[1]\n", 1)
        assert [(one.path, one.change) for one in result.files] == [("outputs/n.txt", "created")]
        assert (workspace.version, await text_of(workspace, "outputs/n.txt")) == (1, b"1")
        assert await ends(workspace, running.execution_id) == "ok"
        after = await second.run("c", "print(x, open('outputs/n.txt').read())")
        assert (after.stdout.text, after.interpreter) == ("[1] 1\n", InterpreterState.KEPT)
        assert (after.files, workspace.version) == ([], 1)


async def test_a_version_that_was_written_is_not_written_again(starts: Starts) -> None:
    """The runner died between the version and the outcome that follows it."""
    first = await starts().begun()
    first.store.stops.add(".end.json")
    running = await first.begin("c", "open('n.txt', 'w').write('1'); open('m.txt', 'w').write('2')")
    async with asyncio.timeout(60):
        await first.store.reached.wait()
    await first.kill()
    async with starts() as second:
        workspace = (await second.talk("c")).workspace
        result = await (await second.service.execution(T, "c", running.execution_id)).result()
        told = {(one.path, one.change, one.entry and one.entry.size) for one in result.files}
        assert told == {("m.txt", "created", 1), ("n.txt", "created", 1)}
        assert (workspace.version, set(workspace.files)) == (1, {"m.txt", "n.txt"})
        assert (await second.run("c", "print(open('n.txt').read())")).stdout.text == "1\n"


async def test_a_run_of_which_nothing_was_written_yet_is_recorded(
    starts: Starts, waiting: str, go_on: Callable[[], None]
) -> None:
    first = await starts().begun()
    first.store.stops.add(".begin.json")
    running = await first.begin("c", waiting, announced=False)
    await first.store.reached.wait()
    await first.kill()
    async with starts() as second:
        workspace = (await second.talk("c")).workspace
        go_on()
        result = await (await second.service.execution(T, "c", running.execution_id)).result()
        record = await workspace.read_execution(running.execution_id)
        assert record is not None
        assert (result.outcome, record.begin["version"], workspace.version) == (Outcome.OK, 0, 1)


async def test_a_run_that_never_reached_its_sandbox_is_lost(starts: Starts) -> None:
    """Its beginning was written and its key was not claimed: it was not sent, and its key is free."""
    first = await starts().begun()
    await first.run("c", "x = []")
    first.store.stops.add("create /k/")
    running = await first.begin("c", "x.append(1)", key="k")
    await first.store.reached.wait()
    await first.kill()
    async with starts() as second:
        assert await ends((await second.talk("c")).workspace, running.execution_id) == "lost"
        again = await second.begin("c", "x.append(1)", key="k")
        assert (await again.result()).outcome is Outcome.OK
        assert again.execution_id != running.execution_id
        assert (await second.run("c", "print(x)")).stdout.text == "[1]\n"


async def test_files_that_were_being_pushed_are_pushed_again(starts: Starts) -> None:
    """One was removed from the sandbox before the end: that it had it once does not count."""
    first = await starts().begun()
    await first.run("c", "x = 1; open('back.txt', 'w').write('b')")
    workspace = (await first.talk("c")).workspace
    await workspace.delete("back.txt")
    await first.upload("c", "large.bin", b"l" * 100_000)
    running = await first.begin("c", "x = 2")
    await killed_at(first, running, workspace.files["large.bin"].blob)
    async with starts() as second:
        with pytest.raises(NotFound):  # it had not begun
            await second.service.execution(T, "c", running.execution_id)
        await second.upload("c", "back.txt", b"b")
        code = "import os; print(x, sorted((n, os.path.getsize(n)) for n in os.listdir() if '.' in n))"
        result = await second.run("c", code)
        assert (result.stdout.text, result.files) == ("1 [('back.txt', 1), ('large.bin', 100000)]\n", [])


async def test_what_was_told_before_is_left_out_and_counted(
    starts: Starts, waiting: str, go_on: Callable[[], None]
) -> None:
    first = await starts().begun()
    running = await first.begin("c", "for i in range(9000): print(i, '-' * 90)\n" + waiting)
    await first.said(running, "waiting")
    await first.kill()
    async with starts() as second:
        known = await second.service.execution(T, "c", running.execution_id)
        go_on()
        result = await known.result()
        text = result.stdout
        assert (result.outcome, text.truncated, text.full) == (Outcome.OK, True, None)
        assert text.text.startswith("\n… ")
        assert text.text.endswith("8999 " + "-" * 90 + "\nwaiting\nover\n")
        kinds = [event.kind async for event in known.log.follow(known.log.oldest - 1)]
        assert (kinds[-2:], set(kinds[:-2])) == (["file", "done"], {"stdout"})
        with pytest.raises(EventsDropped):
            [event async for event in known.log.follow()]


async def test_what_cannot_be_taken_over_is_ended(
    starts: Starts, engine: Engine, tmp_path: Path, store: Store, waiting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await starts().begun()
    for name in ("dead", "deaf", "gone", "old", "fine"):
        await first.run(name, f"x = {name!r}")
    runs = {name: await first.begin(name, waiting) for name in ("dead", "deaf")}
    for running in runs.values():
        await first.said(running, "waiting")
    names = {name: (await first.talk(name)).mirror for name in ("dead", "deaf", "gone", "old", "fine")}
    boxes = {name: mirror.client.sandbox_id for name, mirror in names.items() if mirror is not None}
    await first.kill()
    engine.boxes[boxes["dead"]].end()
    os.kill(engine.boxes[boxes["deaf"]].process.pid, signal.SIGSTOP)
    await Workspaces(store, WorkspaceConfig(tmp_path)).purge(T, "gone")
    note = tmp_path / "sandboxes" / f"{boxes['old']}.json"
    note.write_text(note.read_text().replace('"agent": "', '"agent": "of another release '))
    monkeypatch.setattr(adoption, "_EACH_S", 1.0)
    async with starts() as second:
        assert (second.service.live, engine.running) == (1, 1)
        assert [path.stem for path in (tmp_path / "sandboxes").glob("*")] == [boxes["fine"]]
        for name, running in runs.items():
            result = await (await second.service.execution(T, name, running.execution_id)).result()
            assert result.outcome is Outcome.LOST
            assert await ends((await second.talk(name)).workspace, running.execution_id) == "lost"
        for name in ("dead", "old"):
            result = await second.run(name, "print('x' in globals())")
            assert (result.stdout.text, result.interpreter_reason) == ("False\n", "restored")
        assert (await second.run("fine", "print(x)")).stdout.text == "fine\n"


async def test_idle_sandboxes_that_are_too_many_now_are_ended(
    starts: Starts, engine: Engine, waiting: str, go_on: Callable[[], None]
) -> None:
    first = await starts().begun()
    running = await first.begin("busy", waiting)
    await first.said(running, "waiting")
    await first.run("idle", "x = 1")
    await first.kill()
    async with starts(max_live=1) as second:
        assert (engine.running, (await second.talk("busy")).alive) == (1, True)
        go_on()
        result = await (await second.service.execution(T, "busy", running.execution_id)).result()
        assert result.outcome is Outcome.OK
        assert (await second.run("idle", "print('x' in globals())")).interpreter_reason == "evicted"


@pytest.mark.parametrize("keep", [True, False])
async def test_a_stop_leaves_idle_sandboxes_to_the_next_start_unless_told_not_to(
    starts: Starts, engine: Engine, keep: bool
) -> None:
    async with starts(keep_on_stop=keep) as first:
        await first.run("c", "x = 1")
        endless = await first.begin("d", "while True: pass")
        await first.said(await first.begin("e", "print('e')"), "e")
    assert (await endless.result()).outcome is Outcome.INTERRUPTED
    assert engine.running == (3 if keep else 0)
    engine.attached.clear()
    async with starts(keep_on_stop=False) as second:
        result = await second.run("c", "print('x' in globals())")
        assert (result.stdout.text, result.interpreter_reason) == (f"{keep}\n", None if keep else "restored")
    assert engine.running == 0


async def test_a_start_does_not_wait_for_an_engine_that_hangs(
    starts: Starts, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await starts().begun()
    await first.run("c", "x = 1")
    await first.kill()
    engine.hangs = True
    monkeypatch.setattr(adoption, "_LIST_S", 0.2)
    async with starts() as second:
        assert second.service.live == 0


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_what_could_not_be_listed_runs_on_and_is_taken_over_later(
    starts: Starts, engine: Engine, waiting: str, go_on: Callable[[], None], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither swept nor settled as lost: whoever asks is told to ask again."""
    first = await starts().begun()
    ended = (await first.run("c", "x = 1")).execution_id
    running = await first.begin("c", waiting, key="k")
    await first.said(running, "waiting")
    await first.kill()
    setattr(engine, how, True)
    monkeypatch.setattr(adoption, "_LIST_S", 0.2)
    async with starts() as second:
        able = replace(second.service.report, available=True)
        assert (second.service.report.available, engine.running) == (False, 1)
        asked = await asyncio.gather(
            second.service.execution(T, "c", running.execution_id),
            second.begin("c", waiting, key="k"),
            second.begin("c", "x = 2"),
            return_exceptions=True,
        )
        assert [type(one) for one in asked] == [BackendUnavailable] * 3
        assert all(isinstance(one, BackendUnavailable) and one.fields["retry_after_ms"] for one in asked)
        assert (await second.service.execution(T, "c", ended)).log.ended
        assert await ends((await second.talk("c")).workspace, running.execution_id) is None
        assert not await second.service.renew(able)
        setattr(engine, how, False)
        assert await second.service.renew(able)
        assert (second.service.report.available, engine.running) == (True, 1)
        go_on()
        known = await second.service.execution(T, "c", running.execution_id)
        assert ((await known.result()).outcome, known.execution_id) == (Outcome.OK, running.execution_id)


async def test_what_nothing_was_noted_of_is_lost_at_once(starts: Starts, engine: Engine, waiting: str) -> None:
    first = await starts().begun()
    running = await first.begin("c", waiting)
    await first.said(running, "waiting")
    await first.notes.forget(next(iter(engine.boxes)))
    await first.kill()
    engine.fails = True
    async with starts() as second:
        known = await second.service.execution(T, "c", running.execution_id)
        assert (await known.result()).outcome is Outcome.LOST
