"""Findings 5 and 6, fault 1: SIGKILL of the runner ends its sandboxes, and the next start sweeps their groups.

Control: without ``--die-with-parent`` a process that left its session and ignores signals lives on, until the
next start finds its group by the record.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

import httpx
import pytest

from tests.hostile.conftest import WeakService
from tests.hostile.support import outside
from tests.hostile.support.place import Place
from tests.support.runner import Chat

SURVIVOR = """
import os, signal
ready, told = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        os.write(told, b"x")
        open("/tmp/survivor", "w").close()
        while True:
            signal.pause()
    os._exit(0)
os.read(ready, 1)
import time
time.sleep(60)
"""


def kill_during_a_run(service: WeakService) -> tuple[list[int], set[str]]:
    """Start a run with a survivor, SIGKILL the runner; gives the sandbox's processes and its groups' names."""
    with service.runner.client() as http:
        place = Place(service.runner, Chat(http))
        place.say("1")
        pids = place.processes()

        def run() -> None:
            with service.runner.client() as own, contextlib.suppress(AssertionError, httpx.HTTPError):
                Chat(own, place.chat.id).run(SURVIVOR)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        outside.wait_for(lambda: Path(f"/proc/{pids[0]}/root/tmp/survivor").exists(), "the survivor runs")
        pids = [pid for pid in outside.descendants(service.runner.pid) if "Uid" in outside.status(pid)]
        noted = set(outside.records(service.runner))
        os.kill(service.runner.pid, signal.SIGKILL)
        assert service.runner.process is not None
        service.runner.process.wait(10)
        thread.join(10)
        return pids, noted


@pytest.mark.parametrize("names", [(), ("outlives_runner",)], ids=["strong", "control"])
def test_no_process_outlives_the_runner(tmp_path: Path, names: tuple[str, ...]) -> None:
    service = WeakService(tmp_path / "data")
    service.order(names, "")
    service.runner.start()
    try:
        pids, noted = kill_during_a_run(service)
        assert noted
        assert len(pids) >= 4
        if names:
            assert any(outside.alive(pid) for pid in pids)
        else:
            outside.wait_for(lambda: not any(outside.alive(pid) for pid in pids), "all are dead", 3)
        assert noted <= outside.groups(os.getpid())
        service.runner.start()
        outside.wait_for(lambda: not noted & outside.groups(os.getpid()), "the groups are swept")
        outside.wait_for(lambda: not any(outside.alive(pid) for pid in pids), "the survivors are dead")
        assert not noted & set(outside.records(service.runner))
        told = "removed sandboxes of a dead runner"
        outside.wait_for(lambda: told in service.runner.log.read_text(), "the log says so")
    finally:
        service.runner.stop()
    assert outside.records(service.runner) == {}
