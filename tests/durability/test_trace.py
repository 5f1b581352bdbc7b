"""No 2xx leaves before its objects are durable, and after a power cut at any moment all that was promised is there.

The real service runs under strace. Its system calls are followed by ``model``; what a power cut would leave is
built as a folder and opened again. Control: with every sync pretended, the same proof must see files lost.
Fault 10 of the faults table, for power cuts; ``test_steps`` has SIGKILL.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.durability.conftest import Tell
from tests.durability.support import counts, reopen, service
from tests.durability.support.client import Client, files
from tests.durability.support.ledger import Ledger, summary
from tests.durability.support.model import Model
from tests.durability.support.nodes import Image
from tests.durability.support.proof import Answer, Verdict, after_cut, prove
from tests.durability.support.trace import Step, steps
from tests.support.runner import Runner

pytestmark = pytest.mark.timeout(counts.limit(300))

LARGE = 10 << 20


@dataclass
class Traced:
    """A service's whole life: its steps, what it promised, and which answers came one after the other."""

    data: Path
    ledger: Ledger
    seed: int
    alone: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)


def letters(dice: random.Random, size: int) -> bytes:
    """Bytes that a trace shows as they are."""
    return dice.randbytes(size // 2 + 1).hex()[:size].encode()


def one_after_the_other(runner: Runner, ledger: Ledger, dice: random.Random) -> None:
    """Every kind of request that changes something."""
    with runner.client() as http:
        chat = Client(http, ledger, "alone")
        small = letters(dice, 2000)
        assert chat.put("uploads/small", small).status_code == 201
        chat.put("uploads/large", letters(dice, LARGE))
        chat.put("uploads/empty", b"")
        chat.put("uploads/same", small)
        larger = letters(dice, 3000)
        chat.put("uploads/small", larger)
        assert chat.delete("uploads/same").status_code == 204
        many = {f"bulk/{number}": letters(dice, 500 * number) for number in range(12)}
        assert chat.bulk(many).is_success
        made = {f"outputs/{number}": f"made {number} {dice.random()}".encode() for number in range(3)}
        code = "import os, pathlib\nos.makedirs('outputs', exist_ok=True)\n"
        code += "\n".join(f"pathlib.Path({path!r}).write_bytes({data!r})" for path, data in made.items())
        result = chat.run(code, made)
        assert result.get("outcome") == "ok", result
        before = chat.files() or {}
        chat.stream(
            "open('outputs/0', 'w').write('again'); os.remove('outputs/1')", {"outputs/0": b"again", "outputs/1": None}
        )
        shown = http.get("/v1/conversations/alone").json()
        back = {path: before[path] for path in ("outputs/0", "outputs/1")}
        assert chat.restore(shown["version"] - 1, back).is_success
        assert chat.move("uploads/small", "moved/small", larger).is_success
        gone = Client(http, ledger, "purged")
        gone.put("a", small)
        gone.run("open('b', 'w').write('b')", {"b": b"b"})
        assert gone.purge().status_code == 204
        again = Client(http, ledger, "purged")
        again.put("c", small)


def at_once(runner: Runner, ledger: Ledger, dice: random.Random) -> None:
    """Four conversations whose requests are under way together."""

    def client(number: int, own: random.Random) -> None:
        with runner.client() as http:
            chat = Client(http, ledger, f"together-{number}")
            for turn in range(6):
                chat.put(f"f{turn}", letters(own, own.choice((0, 10, 5000, 400_000))))
                if turn % 3 == 2:
                    chat.delete(f"f{turn - 1}")
            chat.run("open('made', 'w').write('made')", {"made": b"made"})
            if number == 3:
                chat.purge()

    threads = [threading.Thread(target=client, args=(n, random.Random(dice.random()))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def life(folder: Path, seed: int, *options: str, together: bool = True) -> Traced:
    """Run a service from its first start to its end, under strace."""
    data, trace, dice = folder / "data", folder / "trace", random.Random(seed)
    found = Traced(data, Ledger(), seed)
    with service.running(data, service.strace(trace, *options), SANDBOX_POOL_SIZE="1") as runner:
        one_after_the_other(runner, found.ledger, dice)
        found.alone = set(found.ledger.names)
        if together:
            at_once(runner, found.ledger, dice)
        with runner.client() as http:
            lived = {name: files(http, name) for name in found.ledger.allowed()}
    assert not found.ledger.problems({name: held for name, held in lived.items() if held is not None})
    found.steps = list(steps(service.lines(trace, runner.pid)))
    return found


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """One life that all proofs here look at."""
    return life(tmp_path_factory.mktemp("traced"), counts.seed())


def faults(found: Traced, trace: list[Step]) -> Verdict:
    """The verdict over a trace; only where requests come one after the other is all that is pending their own."""
    verdict = prove(trace, str(found.data), ignore=service.beside)
    verdict.faults = [
        fault for fault in verdict.faults if fault.answer in found.alone or fault.answer.startswith("line")
    ]
    return verdict


def test_no_answer_leaves_before_its_objects(traced: Traced, tell: Tell) -> None:
    verdict = faults(traced, traced.steps)
    assert not verdict.faults, summary(map(str, verdict.faults))
    seen = {answer.name for answer in verdict.answers}
    assert traced.ledger.names <= seen, "answers that the trace does not show"
    tell(f"{len(seen)} answers, {verdict.changes} changes, {verdict.syncs} syncs, 0 too early (seed {traced.seed})")


def test_a_sync_taken_out_of_the_trace_is_reported(traced: Traced, tell: Tell) -> None:
    """Control for the judge: without any one sync of an object or its folder something is not durable in time.

    A few only repeat what another one did, where a folder or a key was already there.
    """
    dice = random.Random(traced.seed)
    top = str(traced.data) + "/"
    own = [index for index, step in enumerate(traced.steps) if _syncs_an_object(step, top)]
    chosen = dice.sample(own, min(counts.times(12), len(own)))
    reported = 0
    for index in chosen:
        step = traced.steps[index]
        without = [*traced.steps]
        without[index] = replace(step, call=replace(step.call, injected=True))
        reported += bool(prove(without, str(traced.data), ignore=service.beside).faults)
    assert reported >= 0.75 * len(chosen)
    tell(f"{reported} of {len(chosen)} syncs missed when taken out (seed {traced.seed})")


def _syncs_an_object(step: Step, top: str) -> bool:
    call = step.call
    return step.phase == "end" and call.name in ("fsync", "fdatasync") and call.ok and top in call.args[0]


@dataclass
class Cuts:
    """Cuts the power at answers and at moments between them, and opens what is left."""

    found: Traced
    rebuilt: reopen.Rebuilt
    between: set[int]
    seen: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    opened: int = 0
    _changes: int = -1

    def observe(self, model: Model, answer: Answer | None) -> None:
        if answer is None and model.changes not in self.between:
            return
        if answer is not None:
            self.seen.add(answer.name)
            if answer.name not in self.found.ledger.names:
                return
        opened: list[Image] = []
        for variant, image in after_cut(model).items():
            if image in opened:
                continue
            opened.append(image)
            place = self.rebuilt.put(image)
            where = f"cut at {answer.name if answer else model.changes}, {variant}"
            try:
                broken = self.found.ledger.problems(reopen.served(place), self.seen)
            except Exception as error:
                broken = [f"cannot be opened: {error!r} {getattr(error, 'cause', '')}"]
            self.problems += [f"{where}: {problem}" for problem in broken]
            self.opened += 1


def test_a_power_cut_at_every_answer_and_between(traced: Traced, tmp_path: Path, tell: Tell) -> None:
    dice = random.Random(traced.seed)
    changes = prove(traced.steps, str(traced.data)).changes
    cuts = Cuts(
        traced, reopen.Rebuilt(tmp_path), set(dice.sample(range(1, changes), min(changes - 1, counts.times(30))))
    )
    prove(traced.steps, str(traced.data), observe=cuts.observe)
    assert traced.ledger.names <= cuts.seen
    assert not cuts.problems, summary(cuts.problems)
    tell(
        f"{cuts.opened} folders after power cuts opened, {traced.ledger.promised()} files promised, 0 lost "
        f"(seed {traced.seed})"
    )


def test_without_syncs_the_same_proof_sees_files_lost(tmp_path: Path, tell: Tell) -> None:
    """Control: strace makes every sync succeed and do nothing."""
    found = life(tmp_path, counts.seed(), *service.no_syncs(), together=False)
    verdict = faults(found, found.steps)
    cuts = Cuts(found, reopen.Rebuilt(tmp_path / "rebuilt"), set())
    prove(found.steps, str(found.data), observe=cuts.observe)
    assert {fault.answer for fault in verdict.faults} >= found.alone
    assert any("gone" in problem for problem in cuts.problems)
    tell(
        f"control: {len(verdict.faults)} faults reported, {len(cuts.problems)} promises seen broken (seed {found.seed})"
    )


def test_the_real_service_opens_what_a_power_cut_left(traced: Traced, tmp_path: Path, tell: Tell) -> None:
    """A few cuts through the front door: every file over HTTP, and the next upload and run."""
    dice = random.Random(traced.seed)
    chosen = set(dice.sample(sorted(traced.ledger.names), counts.times(2)))
    rebuilt = reopen.Rebuilt(tmp_path)
    seen: set[str] = set()
    broken: list[str] = []

    def observe(model: Model, answer: Answer | None) -> None:
        if answer is None:
            return
        seen.add(answer.name)
        if answer.name in chosen:
            data = rebuilt.put(after_cut(model)["nothing unsynced"])
            with service.running(data, SANDBOX_POOL_SIZE="0") as runner, runner.client() as http:
                lived = {name: files(http, name) for name in traced.ledger.allowed()}
                held = {name: found for name, found in lived.items() if found is not None}
                broken.extend(traced.ledger.problems(held, seen))
                assert Client(http, Ledger(), "next").put("file", b"next").status_code == 201

    prove(traced.steps, str(traced.data), observe=observe)
    assert chosen <= seen
    assert not broken, summary(broken)
    tell(f"{len(chosen)} cuts served over HTTP, 0 promises broken (seed {traced.seed})")
