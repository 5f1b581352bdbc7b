"""A process is known again by number and birth; only that one is ended."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from runner.backends.bubblewrap import leftover


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as process:
        yield process
        leftover.kill_children(process.pid)
        process.kill()


def test_the_process_and_its_children_are_ended(sleeper: subprocess.Popen[bytes]) -> None:
    assert leftover.end(leftover.facts(sleeper.pid))
    assert sleeper.wait(5) == -9


def test_another_of_the_same_number_is_left_alone(sleeper: subprocess.Popen[bytes]) -> None:
    assert leftover.end(leftover.facts(sleeper.pid) | {"born": "another boot 1"})
    assert sleeper.poll() is None


@pytest.mark.parametrize(
    "record", [{}, {"pid": 1, "born": ""}, {"pid": "x"}, {"pid": os.getpid()}, {"pid": -1, "born": ""}]
)
def test_a_record_without_a_process_is_no_obstacle(record: dict[str, object]) -> None:
    assert leftover.end(record)


def test_one_that_has_ended_counts_as_ended() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        facts = leftover.facts(process.pid)
        process.kill()
        process.wait()
    assert leftover.end(facts)
