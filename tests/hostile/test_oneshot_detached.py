"""A detached process dies with its lease, whatever ends that, and however it holds on. Verdict: the host's /proc.

The control of each is seen first: it lives while the lease does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.cli.local_service import LocalService
from tests.support import sandboxes
from tests.support.oneshot import OneShot, serving, sleepers
from tests.support.runner import running
from tests.support.waiting import aside, until

SLEEP = "900.731"
# Sessions of their own, every signal ignored, double forks, and one that is stopped.
HOLD = f"""
import os, signal, subprocess, time
shell = "trap '' HUP INT QUIT TERM USR1 USR2 PIPE ALRM; exec sleep {SLEEP}"
for _ in range(3):
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        subprocess.Popen(["sh", "-c", shell], start_new_session=True)
        os._exit(0)
stopped = subprocess.Popen(["sleep", "{SLEEP}"], start_new_session=True)
time.sleep(0.3)
stopped.send_signal(signal.SIGSTOP)
"""


@contextmanager
def detached(tmp_path: Path, **env: str) -> Iterator[tuple[LocalService, OneShot, str]]:
    """A lease in which four processes live on."""
    assert sleepers(SLEEP) == 0
    with serving(tmp_path, **env) as (service, oneshot):
        lease = oneshot.lease(HOLD)
        assert oneshot.out("echo another run", "bash", container_id=lease) == "another run\n"
        assert sleepers(SLEEP) == 4
        yield service, oneshot, lease


def test_it_ends_when_the_lease_is_let_go_of(tmp_path: Path) -> None:
    with detached(tmp_path) as (_, oneshot, lease):
        oneshot.release(lease)
        until(lambda: sleepers(SLEEP) == 0, "all to end")


def test_it_ends_with_an_idle_lease(tmp_path: Path) -> None:
    with detached(tmp_path, SANDBOX_LEASE_TTL_SECS="5"):
        until(lambda: sleepers(SLEEP) == 0, "all to end", 60)


def test_it_ends_with_a_lease_whose_run_takes_too_long(tmp_path: Path) -> None:
    with detached(tmp_path) as (_, oneshot, lease):
        assert oneshot.run("sleep 60", "bash", timeout_secs=1, container_id=lease)["container_id"] is None
        until(lambda: sleepers(SLEEP) == 0, "all to end")


def test_it_ends_when_the_service_stops(tmp_path: Path) -> None:
    with detached(tmp_path, SANDBOX_KEEP_ON_STOP="0") as (service, _, _lease):
        assert service.stop() == 0
        until(lambda: sleepers(SLEEP) == 0, "all to end")


def test_it_ends_when_the_service_is_killed(tmp_path: Path) -> None:
    """Where sandboxes outlive the runner the lease does too, and ends as others do: after its time."""
    with detached(tmp_path, SANDBOX_LEASE_TTL_SECS="8") as (service, _, _lease):
        service.kill()
        if sandboxes.on_engine():
            service.start()
        until(lambda: sleepers(SLEEP) == 0, "all to end", 60)


def test_a_single_run_leaves_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, oneshot):
        done = aside(lambda: oneshot.run(HOLD + "time.sleep(2)"))
        until(lambda: sleepers(SLEEP) == 4, "the control: all to live while the run does")
        assert done.result(60)["exit_code"] == 0
        until(lambda: sleepers(SLEEP) == 0, "all to end", 10)


def test_elsewhere_it_ends_with_its_run(tmp_path: Path) -> None:
    with running(tmp_path) as service, service.client() as http:
        body = {"code": HOLD, "language": "python"}
        assert http.post("/v1/conversations/other/execute", json=body).json()["outcome"] == "ok"
        assert sleepers(SLEEP) == 0


@pytest.mark.parametrize("fields", [{"detached": True}, {"script": True, "detached": True}])
def test_no_other_surface_can_ask_for_it(tmp_path: Path, fields: dict[str, bool]) -> None:
    with running(tmp_path) as service, service.client() as http:
        body = {"code": HOLD, "language": "python", **fields}
        http.post("/v1/conversations/other/execute", json=body)
        assert sleepers(SLEEP) == 0


BOMB = """
import os
if not os.fork():
    os.setsid()
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""


def test_limits_hold_for_it(tmp_path: Path) -> None:
    """A bomb that is left in a lease stays within the processes of its sandbox, and costs that lease alone."""
    with serving(tmp_path, SANDBOX_PIDS_LIMIT="64") as (service, oneshot):
        lease = oneshot.lease(BOMB)
        assert len(sandboxes.processes(service)) < 64 + 60
        assert oneshot.out("print('other')") == "other\n"
        oneshot.release(lease)
        assert oneshot.out("print('other')") == "other\n"
