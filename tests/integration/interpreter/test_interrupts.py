"""Interrupts and deadlines: they end what runs, and never what only waits."""

from __future__ import annotations

import asyncio
import random
import time
from statistics import median

import pytest

from runner.interpreter.client import RunEnd
from runner.model import Outcome, RunRequest
from tests.integration.interpreter.jail import Jail
from tests.unit.agent.lab import repeat

ENDLESS = {
    "loop": "while True: pass",
    "sleep": "import time; time.sleep(100)",
    "subprocess": "import subprocess; subprocess.run(['sleep', '100'])",
    "shell": "!sleep 100",
    "await": "import asyncio; await asyncio.sleep(100)",
    "thread wait": "import threading; threading.Event().wait()",
    "input from a pipe": "import os; r, w = os.pipe(); os.read(r, 1)",
    "flood": "while True: print('x' * 1000)",
    "displays": "while True: display('x' * 10_000)",
    "stopped": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)\nwhile True: pass",
}
SOON = ("loop", "sleep", "subprocess")


@pytest.mark.parametrize("name", ENDLESS)
def test_an_interrupt_ends_it_soon_and_keeps_the_interpreter(jail: Jail, name: str) -> None:
    jail.ok("x = 1")
    took = []
    for _ in range(3 if name in SOON else 1):
        ran = jail.run("print('go', flush=True)\n" + ENDLESS[name], during=jail.interrupt_when("go"))
        took.append(time.monotonic() - jail.interrupted_at)
        assert (ran.outcome, ran.over.interpreter) == (Outcome.INTERRUPTED, "kept"), ran.over
        assert ran.error["name"] == "KeyboardInterrupt"
    assert median(took) < (0.5 if name in SOON else 1.5)  # 5 to 20 ms on a quiet machine
    assert jail.ok("print(x)").out == "1"


def test_a_pool_is_interrupted(jail: Jail) -> None:
    code = "import multiprocessing, time\nwith multiprocessing.Pool(2) as p:\n p.map(time.sleep, [100, 100])"
    ran = jail.run("print('go', flush=True)\n" + code, during=jail.interrupt_when("go"))
    # Whether a Pool gets over the interrupt of its workers is up to Python; if not, it is killed.
    assert ran.outcome is Outcome.INTERRUPTED
    assert ran.over.survivors == 0


def test_bash_is_interrupted(jail: Jail) -> None:
    ran = jail.run("echo go; sleep 100", language="bash", during=jail.interrupt_when("go"))
    assert (ran.outcome, ran.seconds < 4.5) == (Outcome.INTERRUPTED, True)  # it is killed after 5 s if it does not obey


def test_code_that_ignores_interrupts_is_killed_after_five_seconds(jail: Jail) -> None:
    code = """
print('go', flush=True)
while True:
    try:
        while True: pass
    except BaseException: print('ignored', flush=True)
"""
    ran = jail.run(code, during=jail.interrupt_when("go"))
    assert (ran.outcome, ran.over.interpreter) == (Outcome.INTERRUPTED, "lost")
    assert ran.text().count("ignored") in (1, 2)  # one, if it had no processor between the two
    assert 4.9 < time.monotonic() - jail.interrupted_at < 15


STUBBORN = "while True:\n try:\n  while True: pass\n except BaseException: pass"


@pytest.mark.parametrize(("code", "state"), [("while True: pass", "kept"), (STUBBORN, "lost")])
def test_after_its_limit_a_run_is_dead_within_a_second(jail: Jail, code: str, state: str) -> None:
    took: list[int] = []
    while not took or (min(took) >= 1500 and len(took) < 3):  # once in three tries, whatever else the machine does
        ran = jail.run(code, timeout_ms=300)
        assert (ran.outcome, ran.over.interpreter) == (Outcome.TIMEOUT, state)
        took.append(ran.over.duration_ms)
    assert min(took) < 1500
    assert jail.ok("print(1)").out == "1"


def test_the_first_reason_is_told(jail: Jail) -> None:
    code = "print('go', flush=True)\nimport time\ntry: time.sleep(9)\nexcept KeyboardInterrupt: time.sleep(9)"
    ran = jail.run(code, timeout_ms=1500, during=jail.interrupt_when("go"))
    assert ran.outcome is Outcome.INTERRUPTED


def test_interrupts_at_random_moments_cost_no_interpreter(jail: Jail) -> None:
    tries = repeat(2000)
    jail.ok("kept = 0")
    lost, hits = jail.wait(_bombard(jail, tries), 600)
    assert lost == 0
    assert jail.ok("print(kept)").out.isdigit()
    print(f"{tries} interrupts, {hits} of them hit a running cell, {lost} interpreters lost")


CELLS = ("kept += 1", "kept += 1\nfor i in range(9000): pass", "print(kept)", "kept", "display(1)")


async def _bombard(jail: Jail, tries: int) -> tuple[int, int]:
    source = random.Random(4)
    lost = hits = 0
    for number in range(tries):
        run_id = f"b{number}"

        async def interrupt(name: str = run_id) -> None:
            until = time.perf_counter() + source.random() * 0.004
            while time.perf_counter() < until:
                await asyncio.sleep(0)
            await jail.client.interrupt(name)

        shooting = asyncio.create_task(interrupt())
        code = source.choice(CELLS)
        async for event in jail.client.run(run_id, RunRequest(code=code)):
            if isinstance(event, RunEnd):
                lost += event.interpreter == "lost"
                hits += event.observed.status == "interrupted"
        await shooting
        jail.client.acknowledge(run_id)
    return lost, hits
