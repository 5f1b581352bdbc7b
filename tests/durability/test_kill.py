"""Fault 1: SIGKILL of the real service at random moments, and what the next one finds.

Every acknowledged file has its bytes, nothing acknowledged as deleted is back, no cell ran twice, every run of
which the caller knows has one outcome, and of the dead runner no process, control group or mount is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from runner.cli.local_service import ServiceFailed
from tests.durability.conftest import Tell
from tests.durability.support import counts, service
from tests.durability.support.client import Client, files, outcome
from tests.durability.support.ledger import Ledger, summary
from tests.hostile.support import outside
from tests.support.runner import Runner

pytestmark = pytest.mark.timeout(counts.limit(300))

GONE_S = 5.0
CELL = """
import os
with open('log', 'a') as file:
    file.write({line!r})
os.makedirs('out', exist_ok=True)
with open({path!r}, 'wb') as file:
    file.write({line!r}.encode() * 2000)
"""

Job = Callable[[Client, random.Random], None]


@dataclass
class Round:
    """One life of the service and the clients that it dies under."""

    runner: Runner
    ledger: Ledger
    number: int
    clients: list[Client] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def live(self, dice: random.Random) -> tuple[dict[int, str], set[str]]:
        """Let clients work, kill the service at a moment that chance decides; what it had running then."""
        work = [self._uploads, self._uploads, self._runs, self._streams]
        with contextlib.ExitStack() as stack:
            threads = []
            for index, job in enumerate(work):
                http = stack.enter_context(self.runner.client())
                client = Client(http, self.ledger, f"c{self.number}-{index}")
                self.clients.append(client)
                own = random.Random(dice.random())
                threads.append(threading.Thread(target=self._until_dead, args=(job, client, own)))
            for thread in threads:
                thread.start()
            self._wait(dice)
            running = outside.descendants(self.runner.pid)
            born = {pid: told for pid in running if (told := _born(pid))}
            noted = set(outside.records(self.runner))
            self.runner.kill()
            self.stop.set()
            for thread in threads:
                thread.join(20)
                assert not thread.is_alive()
        return born, noted

    def _wait(self, dice: random.Random) -> None:
        """Until some requests, or some runs, were answered, and a random moment more."""
        by_runs = dice.random() < 0.6
        if by_runs:
            outside.wait_for(lambda: self._runs_seen() > 0, "a first run has ended", 60)
        wanted = dice.randint(0, 4) if by_runs else len(self.ledger.names) + dice.choice((1, 5, 20, 60, 150))
        deadline = time.monotonic() + 6
        while (self._runs_seen() if by_runs else len(self.ledger.names)) < wanted and time.monotonic() < deadline:
            self.stop.wait(0.002)
        self.stop.wait(dice.uniform(0, 0.1))

    def _runs_seen(self) -> int:
        return sum(len(client.finished) for client in self.clients)

    def _until_dead(self, job: Job, client: Client, dice: random.Random) -> None:
        with contextlib.suppress(httpx.TransportError):
            job(client, dice)

    def _uploads(self, client: Client, dice: random.Random) -> None:
        for turn in range(100_000):
            data = dice.randbytes(dice.choice((0, 100, 40_000, 700_000)))
            path = f"up/{turn % 30}"
            choice = dice.random()
            if choice < 0.15 and turn > 5:
                client.delete(f"up/{dice.randrange(30)}")
            elif choice < 0.3:
                client.bulk({f"bulk/{turn % 5}/{number}": data[:1000] for number in range(6)})
            elif choice < 0.4:
                number = turn % 10
                client.delete(f"moved/{number}")
                client.put(f"moving/{number}", data)
                client.move(f"moving/{number}", f"moved/{number}", data)
            else:
                client.put(path, data)
            if self.stop.wait(0.03):
                return

    def _runs(self, client: Client, _: random.Random) -> None:
        """Each with a key, so that the last one can be sent again."""
        self._cells(client, lambda code, changes: client.run(code, changes, secrets.token_hex(8)))

    def _streams(self, client: Client, _: random.Random) -> None:
        self._cells(client, client.stream)

    def _cells(self, client: Client, run: Callable[[str, dict[str, bytes | str | None]], object]) -> None:
        """Each cell adds a line of its own: the exact text says which cells ran, and how often."""
        log = ""
        for turn in range(100_000):
            line, path = f"{client.id} {turn}\n", f"out/{turn % 4}"
            log += line
            run(CELL.format(line=line, path=path), {"log": log.encode(), path: line.encode() * 2000})
            if self.stop.is_set():
                return


def _born(pid: int) -> str:
    with contextlib.suppress(OSError):
        return outside.born(pid)
    return ""


def left(born: dict[int, str], noted: set[str], data: Path) -> list[str]:
    """What is left of a dead runner."""
    found = [f"process {pid}" for pid, when in born.items() if outside.alive(pid) and _born(pid) == when]
    found += [f"group of {name}" for name in noted & outside.groups(os.getpid())]
    return found + [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(data) in line]


def test_sigkill_at_random_moments(tmp_path: Path, tell: Tell) -> None:
    seed = counts.seed()
    dice = random.Random(seed)
    data, ledger = tmp_path / "data", Ledger()
    runner = service.make(data, SANDBOX_POOL_SIZE="0")
    told = again = 0
    rounds = counts.times(8)
    runner.start()
    try:
        for number in range(rounds):
            life = Round(runner, ledger, number)
            born, noted = life.live(dice)
            if dice.random() < 0.3:
                _killed_while_starting(runner, dice)
            runner.start()
            outside.wait_for(lambda: not left(born, noted, data), "the dead runner has left nothing", GONE_S)  # noqa: B023
            with runner.client() as http:
                looked = {name: ledger.allowed()[name] for name in _some(ledger, number, rounds, dice)}
                broken = [
                    f"{name}: {problem}"
                    for name, allowed in looked.items()
                    for problem in allowed.problems(files(http, name))
                ]
                odd = [result for client in life.clients for result in client.odd]
                assert not odd, f"seed {seed}, round {number}: {summary(odd)}"
                assert not broken, f"seed {seed}, round {number}: {summary(broken)}"
                assert not list((data / "store" / "staging").iterdir())
                for client in life.clients:
                    client.http = http
                    again += _sent_again(client, ledger, seed)
                    told += _outcomes(http, client, seed)
    finally:
        if runner.process is not None and runner.process.poll() is None:
            runner.stop()
    acknowledged = len(ledger.names)
    assert acknowledged > 5 * rounds
    assert told > rounds / 4
    tell(
        f"{rounds} SIGKILLs, {acknowledged} answers, {ledger.promised()} files promised, 0 lost, "
        f"{told} runs with one outcome each, {again} sent again and none run twice, "
        f"0 processes, groups or mounts left after {GONE_S:g} s (seed {seed})"
    )


def _some(ledger: Ledger, number: int, rounds: int, dice: random.Random) -> list[str]:
    """Conversations to look at after a round: its own, some older ones, and all after the last."""
    every = list(ledger.allowed())
    own = [name for name in every if name.startswith(f"c{number}-")]
    return every if number == rounds - 1 else own + dice.sample(every, min(3, len(every)))


def _killed_while_starting(runner: Runner, dice: random.Random) -> None:
    """A start that does not come to its end, or just so."""
    moment = threading.Event()

    def kill() -> None:
        before = runner.process
        while runner.process is before:
            moment.wait(0.001)
        moment.wait(dice.uniform(0.1, 0.9))
        assert runner.process is not None
        runner.process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with contextlib.suppress(ServiceFailed):
        runner.start()
    killer.join()
    assert runner.process is not None
    runner.process.wait(10)


def _sent_again(client: Client, ledger: Ledger, seed: int) -> int:
    """The last run of a client, sent once more with its key: told if it ran, else run; never run twice."""
    if client.again() is None:
        return 0
    held = client.files()
    broken = ledger.allowed()[client.id].problems(held)
    assert not broken, f"seed {seed}: {client.id} sent again: {summary(broken)}"
    return 1


def _outcomes(http: httpx.Client, client: Client, seed: int) -> int:
    """Each run of which the caller was told has one outcome, which stays and is what the caller was told."""
    asked = 0
    for execution in {*client.started, *client.finished}:
        first = outcome(http, client.id, execution)
        assert first == outcome(http, client.id, execution)
        told = client.finished.get(execution)
        assert told in (None, first), f"seed {seed}: {client.id} {execution} was {told} and is {first}"
        asked += 1
    return asked
