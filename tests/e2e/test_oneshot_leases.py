"""Leases: kept files, their end, capacity, restarts of the service, and who may use one."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from runner.cli.local_service import LocalService
from tests.support.oneshot import OneShot, files_of, oneshot, open_service, serving, sleepers
from tests.support.waiting import aside, until

__all__ = ["oneshot", "open_service"]


def test_a_lease_keeps_files_and_no_variables(oneshot: OneShot) -> None:
    lease = oneshot.lease("open('a', 'w').write('kept'); x = 1")
    assert lease.startswith("sbx-")
    assert oneshot.out("cat a", "bash", container_id=lease) == "kept"
    answer = oneshot.run("print(x)", container_id=lease)
    assert (answer["exit_code"], answer["container_id"]) == (1, lease)
    assert oneshot.out("print(open('a').read())", container_id=lease, keep_alive=True) == "kept\n"


def test_artifacts_are_what_this_run_changed(oneshot: OneShot) -> None:
    lease = oneshot.lease("echo 1 > a; echo 1 > b", language="bash")
    answer = oneshot.run("echo 2 > b; echo 3 > c", "bash", container_id=lease)
    assert files_of(answer) == {"b": b"2\n", "c": b"3\n"}


def test_a_file_written_again_with_the_same_bytes_is_returned(oneshot: OneShot) -> None:
    """A snapshot by time of change would see it too."""
    lease = oneshot.lease("echo 1 > out.txt", language="bash")
    assert files_of(oneshot.run("echo 1 > out.txt", "bash", container_id=lease)) == {"out.txt": b"1\n"}
    assert oneshot.run("cat out.txt", "bash", container_id=lease)["artifacts"] == []


def test_inputs_are_staged_again_with_every_call(oneshot: OneShot) -> None:
    lease = oneshot.lease("rm -f a", language="bash", files={"a": b"original"})
    for content in (b"original", b"original", b"other"):
        answer = oneshot.run("cat a; echo spoilt > a", "bash", {"a": content}, container_id=lease)
        assert answer["stdout"] == content.decode()
        assert files_of(answer) == {"a": b"spoilt\n"}


def test_an_unknown_lease_is_replaced_without_a_word(oneshot: OneShot) -> None:
    answer = oneshot.run("print(1)", container_id="sbx-1-2-3")
    assert (answer["stdout"], answer["container_id"]) == ("1\n", None)
    answer = oneshot.run("print(1)", container_id="sbx-1-2-3", keep_alive=True)
    assert answer["container_id"] not in (None, "sbx-1-2-3")


def test_a_lease_is_dropped_when_a_run_in_it_takes_too_long(oneshot: OneShot) -> None:
    lease = oneshot.lease("open('a', 'w').write('1')")
    answer = oneshot.run("sleep 30", "bash", timeout_secs=1, container_id=lease)
    assert (answer["timed_out"], answer["container_id"]) == (True, None)
    assert oneshot.run("import os; print(os.path.exists('a'))", container_id=lease)["stdout"] == "False\n"
    answer = oneshot.run("sleep 30", "bash", timeout_secs=1, keep_alive=True)
    assert answer["container_id"] is None


def test_a_lease_that_was_let_go_of_is_gone(oneshot: OneShot, open_service: LocalService) -> None:
    lease = oneshot.lease("open('a', 'w').write('1')")
    for _ in range(2):
        oneshot.release(lease)
    assert oneshot.run("import os; print(os.listdir())", container_id=lease)["stdout"].count("'a'") == 0
    with open_service.client() as http:
        assert http.get(f"/v1/conversations/{lease}").status_code == 404


def test_a_busy_lease_can_be_let_go_of(oneshot: OneShot) -> None:
    lease = oneshot.lease()
    found: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: found.append(oneshot.post("sleep 60.4", "bash", container_id=lease)))
    began = time.monotonic()
    thread.start()
    until(lambda: sleepers("60.4"), "the run to begin")
    oneshot.release(lease)
    thread.join()
    assert time.monotonic() - began < 50
    [response] = found
    assert response.status_code == 502 or response.json()["container_id"] is None


def test_delete_reaches_only_what_run_has_given(open_service: LocalService, oneshot: OneShot) -> None:
    """Trap 9: neither a conversation of another tenant nor anything else goes away by it."""
    with open_service.client() as http:
        for name in ("mine", "sbx-1-2-3"):
            assert http.put(f"/v1/conversations/{name}").status_code == 201
            assert oneshot.http.delete(f"/container/{name}").status_code == 204
            assert http.get(f"/v1/conversations/{name}").status_code == 200
            http.delete(f"/v1/conversations/{name}")
    for name in ("a%2fb", "%2e%2e", "x" * 3000):
        assert oneshot.http.delete(f"/container/{name}").status_code in (204, 401, 404)


def test_two_runs_at_once_in_one_lease_go_one_after_the_other(oneshot: OneShot) -> None:
    lease = oneshot.lease("open('n', 'w').write('0')")
    code = "import time\nn = int(open('n').read())\ntime.sleep(0.2)\nopen('n', 'w').write(str(n + 1))"
    threads = [threading.Thread(target=oneshot.run, args=(code,), kwargs={"container_id": lease}) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert oneshot.out("cat n", "bash", container_id=lease) == "3"


def noted(runner: LocalService) -> int:
    """How many leases and single runs the service would find at its next start."""
    return len(list((runner.data / "leases").glob("*.json")))


def test_as_many_leases_as_may_be(tmp_path: Path) -> None:
    """Trap 13: a run that could not be kept is good, has no id, and says why."""
    with serving(tmp_path, SANDBOX_MAX_LEASES="1") as (_, oneshot):
        lease = oneshot.lease()
        answer = oneshot.run("print(1)", keep_alive=True)
        assert (answer["stdout"], answer["container_id"]) == ("1\n", None)
        assert "not kept" in answer["notes"][0]
        oneshot.release(lease)
        oneshot.lease()


def test_idle_leases_end_and_busy_ones_do_not(tmp_path: Path) -> None:
    with serving(tmp_path, SANDBOX_LEASE_TTL_SECS="6") as (runner, oneshot):
        notes = runner.data / "leases"
        other = oneshot.lease("open('a', 'w').write('1')")
        lease = oneshot.lease("open('a', 'w').write('1')")
        busy = aside(lambda: oneshot.run("sleep 20.4", "bash", container_id=lease))
        until(lambda: not (notes / f"{other}.json").exists(), "the other lease to end")
        assert (notes / f"{lease}.json").exists()
        assert busy.result(90)["container_id"] == lease
        assert oneshot.run("print(1)", container_id=other)["container_id"] is None
        until(lambda: not (notes / f"{lease}.json").exists(), "the lease to end as well")


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_lease_outlives_a_restart_and_single_runs_leave_nothing(tmp_path: Path, ending: str) -> None:
    with serving(tmp_path) as (runner, oneshot):
        lease = oneshot.lease("open('a', 'w').write('kept')")
        single = aside(lambda: oneshot.run("sleep 60", "bash"))
        until(lambda: noted(runner) == 2, "both to be noted")
        getattr(runner, ending)()
        with contextlib.suppress(httpx.TransportError, AssertionError):
            single.result(60)
        runner.start()
        with httpx.Client(base_url=runner.url, timeout=120) as http:
            again = OneShot(http)
            assert again.out("cat a", "bash", container_id=lease) == "kept"
            until(lambda: noted(runner) == 1, "the single run to be forgotten")
            again.release(lease)
            until(lambda: noted(runner) == 0, "the lease to be forgotten")


def test_a_host_that_is_short_costs_no_lease(tmp_path: Path) -> None:
    """What is refused with "come again" is still there then."""
    with serving(tmp_path, SANDBOX_KEEP_ON_STOP="0") as (runner, oneshot):
        plenty = runner.env
        lease = oneshot.lease("open('a', 'w').write('kept')")
        for env, status in (({"SANDBOX_MIN_FREE_MEMORY": "900t"}, 503), ({}, 200)):
            assert runner.stop() == 0
            runner.env = {**plenty, **env}
            runner.start()
            with httpx.Client(base_url=runner.url, timeout=120) as http:
                response = OneShot(http).post("cat a", "bash", container_id=lease)
            assert response.status_code == status, response.text
        assert (response.json()["stdout"], response.json()["container_id"]) == ("kept", lease)


def test_a_stop_costs_no_lease(tmp_path: Path) -> None:
    with serving(tmp_path, SANDBOX_STOP_GRACE_SECONDS="60") as (runner, oneshot):
        lease, other = (oneshot.lease("open('a', 'w').write('kept')") for _ in range(2))
        running = aside(lambda: oneshot.run("echo done > b; sleep 8.4", "bash", container_id=other))
        until(lambda: sleepers("8.4"), "the run to begin")
        runner.process.send_signal(signal.SIGTERM)  # type: ignore[union-attr]
        until(lambda: oneshot.http.get("/readyz").status_code == 503, "the service to stop")
        refused = oneshot.post("cat a", "bash", container_id=lease)
        assert (refused.status_code, set(refused.json())) == (503, {"error"})
        assert running.result(60)["container_id"] == other
        assert runner.stop() == 0
        runner.start()
        with httpx.Client(base_url=runner.url, timeout=120) as http:
            again = OneShot(http)
            assert again.out("cat a", "bash", container_id=lease) == "kept"
            assert again.out("cat a b", "bash", container_id=other) == "keptdone\n"
