"""Fault 10: SIGKILL at each step of every operation of the store, and every step failing: old or new, never else.

Fault 9, its part inside the store: an error at a step is told, what was there stays, and the next try succeeds.
"""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import runner
from tests.durability.conftest import Tell
from tests.durability.support import counts, service
from tests.durability.support.ledger import summary
from tests.durability.support.operations import OPERATIONS, collect, crowded
from tests.durability.support.stepper import SYSTEM_CALLS, Harm
from tests.durability.support.trace import steps
from tests.durability.support.walk import Walk, memory_folder, objects

pytestmark = pytest.mark.timeout(counts.limit(300))

ERRORS = (errno.EIO, errno.ENOSPC)
HARMS: tuple[Harm, ...] = ("once", "from then on")
REPOSITORY = Path(runner.__file__).resolve().parents[1]


@pytest.mark.parametrize("name", OPERATIONS)
def test_killed_at_each_step(name: str, tell: Tell) -> None:
    with memory_folder() as folder:
        tell(f"{name}: {killed_everywhere(Walk(folder, OPERATIONS[name]))}")


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_step_fails(name: str, tell: Tell) -> None:
    with memory_folder() as folder:
        tell(f"{name}: {failed_everywhere(Walk(folder, OPERATIONS[name]), counts.times(40))}")


def test_many_files_on_a_disk_that_is_synced_as_a_whole(tmp_path: Path, tell: Tell) -> None:
    """The same on the disk of the temporary folder: there, many files may be synced by one ``syncfs``."""
    walk, part = Walk(tmp_path, OPERATIONS["upload_many"]), counts.times(12)
    tell(f"upload_many on a disk: {killed_everywhere(walk, part)}; {failed_everywhere(walk, part)}")


def test_a_collection_killed_and_failing_at_its_steps(tell: Tell) -> None:
    """It removes much, and nothing that is served; what a killed one left, the next one removes."""
    with memory_folder() as folder:
        walk = Walk(folder, collect, crowded)
        walk.prepare()
        walk.objects = objects(folder / "place")
        removed = len(objects(folder / "base") - walk.objects)
        assert removed > 60
        part = counts.times(25)
        tell(f"{removed} objects removed; {killed_everywhere(walk, part)}; {failed_everywhere(walk, part)}")


def killed_everywhere(walk: Walk, part: int | None = None) -> str:
    """SIGKILL before each step, or before ``part`` of them."""
    walk.prepare()
    assert walk.before != walk.after
    assert len(walk.steps) >= 5
    every = range(1, len(walk.steps) + 1)
    some = every if part is None else random.Random(counts.seed()).sample(every, min(part, len(every)))
    wrong = [problem for step in some for problem in walk.kill(step)]
    assert not wrong, summary(wrong)
    assert walk.found_before
    assert walk.found_before + walk.found_after == len(some)
    return f"{len(some)} of {len(every)} steps killed, {walk.found_before} old, {walk.found_after} new, 0 mixed"


def failed_everywhere(walk: Walk, part: int) -> str:
    """Each step fails once, or all do from then on, in every way; ``part`` of all these."""
    walk.prepare()
    seed = counts.seed()
    every = [(step, harm, number) for step in range(1, len(walk.steps) + 1) for harm in HARMS for number in ERRORS]
    some = random.Random(seed).sample(every, min(part, len(every)))
    wrong = [problem for step, harm, number in some for problem in walk.fail(step, harm, number)]
    assert not wrong, summary(wrong)
    return f"{len(some)} of {len(every)} failures, all told or mended, 0 mixed (seed {seed})"


PROGRAM = """
import sys
from pathlib import Path
from tests.durability.support.operations import OPERATIONS, base, perform
from tests.durability.support.stepper import Stepper, stepping
place = Path(sys.argv[1])
with stepping(Stepper(str(place))) as stepper:
    perform(place, base, *OPERATIONS.values())
print(len(stepper.done))
"""


def test_no_change_of_the_disk_escapes_the_steps(tmp_path: Path, tell: Tell) -> None:
    """Control: strace counts as many changing system calls as the steps that can be harmed."""
    place, trace = tmp_path / "data", tmp_path / "trace"
    command = [*service.strace(trace), sys.executable, "-c", PROGRAM, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as child:
        counted = int(child.communicate(timeout=60)[0])
    seen = Counter(
        step.call.name
        for step in steps(service.lines(trace, child.pid))
        if step.phase == "end" and step.call.name in SYSTEM_CALLS
        and any(str(place) in arg for arg in step.call.args[:4])
        and (not step.call.name.startswith("open") or {"O_CREAT", "O_TMPFILE"} & set(step.call.args[2].split("|")))
    )  # fmt: skip
    assert seen.total() == counted, seen
    tell(f"{counted} steps counted inside and {seen.total()} system calls outside")
