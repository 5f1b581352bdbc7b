"""How a container ended is told by the daemon, also when a process of it was killed for memory before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from runner.backends.docker.sandbox import DockerSandbox
from runner.model import SandboxUsage


@pytest.mark.parametrize(
    ("before", "oom_killed", "code", "kills"),
    [
        (None, False, 0, None),
        (None, True, 2, 1),  # gVisor, whose kernel is the container
        (0, True, 137, 1),
        (0, False, 137, 0),
        (2, True, 137, 3),
        (2, True, 0, 2),  # the daemon still tells of the earlier ones
    ],
)
async def test_a_kill_for_memory_at_its_end_counts(
    before: int | None, oom_killed: bool, code: int, kills: int | None
) -> None:
    class Daemon:
        async def call(self, method: str, *_: object, **__: object) -> Any:
            return {"State": {"OOMKilled": oom_killed, "ExitCode": code}} if method == "inspect_container" else None

    attached = SimpleNamespace(ended=False)
    counters = SimpleNamespace(usage=lambda: SandboxUsage(oom_kills=before))
    sandbox = DockerSandbox(
        "s", "c", cast(Any, attached), cast(Any, Daemon()), cast(Any, None), cast(Any, counters), 600
    )
    assert (await sandbox.usage()).oom_kills == before
    attached.ended = True
    assert (await sandbox.usage()).oom_kills == kills
