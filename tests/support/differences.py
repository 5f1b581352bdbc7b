"""What is known to differ between columns, and which tests state the other way: the one list that leaves tests out.

A row of ``docs/backends.md`` says to people how each column behaves; ``id`` is the row's name. A test that cannot
hold on a column, or that has a twin for it, is listed here with its row and is not run there. A test that runs on
every column and expects something else on some asks ``differs``. ``tests/contract/test_differences.py`` holds the
two to each other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from tests.support.columns import CHOSEN

DOCKER = ("docker-runc", "docker-runsc")
RUNSC = ("docker-runsc",)
E2E, HOSTILE = "tests/e2e", "tests/hostile"


@dataclass(frozen=True)
class Difference:
    """A behaviour that is another one on ``columns`` than on bubblewrap; ``tests`` are not run there."""

    id: str
    columns: tuple[str, ...]
    tests: tuple[str, ...] = field(default=())


DIFFERENCES: dict[str, Difference] = {
    made.id: made
    for made in (
        Difference("agent-facts", RUNSC),
        Difference("device-folder", DOCKER),
        Difference("device-nodes", RUNSC),
        Difference(
            "egress",
            DOCKER,
            (
                f"{HOSTILE}/test_egress.py::test_70_connections_of_one_sandbox_are_bounded",
                f"{HOSTILE}/test_egress.py::test_the_way_to_the_proxy_cannot_be_taken_over",
            ),
        ),
        Difference("lock-channel", DOCKER),
        Difference(
            "loopback",
            RUNSC,
            (f"{E2E}/test_gateway_commands_media.py::test_capture_a_page_that_the_sandbox_serves",),
        ),
        Difference("memory-of-others", RUNSC),
        Difference(
            "runner-dies",
            DOCKER,
            (
                f"{E2E}/test_executions.py::test_after_a_kill_a_run_is_lost_and_an_ended_one_is_told",
                f"{E2E}/test_idempotency.py::test_a_key_is_remembered_by_the_next_service_and_a_killed_run_is_never_repeated",
                f"{E2E}/test_life.py::test_no_process_outlives_a_killed_service",
                f"{E2E}/test_life.py::test_sigkill_of_the_service_loses_no_file",
            ),
        ),
        Difference("sandbox-uid", DOCKER),
    )
}


def differs(row: str) -> bool:
    """Whether the column of this test process behaves otherwise than bubblewrap in a row of the table."""
    return os.environ.get(CHOSEN, "bubblewrap") in DIFFERENCES[row].columns


def left_out(column: str, nodeid: str) -> str:
    """The row for which a test, with all its parameters, is not run on a column; empty when it is."""
    test = nodeid.partition("[")[0]
    for difference in DIFFERENCES.values():
        if column in difference.columns and test in difference.tests:
            return difference.id
    return ""
