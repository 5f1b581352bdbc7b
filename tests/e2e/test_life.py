"""What survives: SIGKILL of the service, a lost sandbox, eviction; and what the caller is told."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import httpx

from tests.support import events, sandboxes
from tests.support.runner import Chat, running
from tests.support.waiting import aside, queued, until


def test_sigkill_of_the_service_loses_no_file(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0") as service:
        with service.client() as http:
            chat = Chat(http)
            chat.ok("x = 1\nopen('outputs/made.txt', 'w').write('made')")
            chat.put("uploads/given.txt", b"given")
        service.kill()
        service.start()
        with service.client() as http:
            chat = Chat(http, chat.id)
            assert chat.files() == ["outputs/made.txt", "uploads/given.txt"]
            result = chat.run("print(open('uploads/given.txt').read(), open('outputs/made.txt').read())\nx")
            assert result["stdout"] == "given made\n"
            assert (result["error"]["name"], result["interpreter"]) == ("NameError", "new")
            assert result["interpreter_reason"] == "restored"


def test_no_process_outlives_a_killed_service(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="1") as service:
        with service.client() as http:
            Chat(http).ok("import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True); None")
        born = descendants(service.pid)
        assert len(born) >= 4  # the launcher, the agent, the template, an interpreter
        service.kill()
        until(lambda: not born & living(), "what the service had started is gone")
        service.start()
        assert not [p for p in (tmp_path / "run").glob("*.json") if _old(p, service.pid)]


def processes() -> dict[int, tuple[int, str]]:
    """Pid to parent and start time, of everything on this host that is no zombie."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            found[int(entry.parent.name)] = (int(fields[1]), fields[19])
    return found


def living() -> set[tuple[int, str]]:
    """Pid and start time of every process."""
    return {(pid, start) for pid, (_, start) in processes().items()}


def descendants(pid: int) -> set[tuple[int, str]]:
    """Pid and start time of everything below a process."""
    seen = processes()
    below: set[int] = {pid}
    while more := {child for child, (parent, _) in seen.items() if parent in below} - below:
        below |= more
    return {(child, seen[child][1]) for child in below - {pid}}


def _old(record: Path, pid: int) -> bool:
    """Whether a record is older than the service that runs now."""
    return record.stat().st_mtime < Path(f"/proc/{pid}").stat().st_ctime


def test_at_the_cap_the_longest_idle_one_is_dropped_and_restored(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0", SANDBOX_MAX_SESSIONS="2") as service, service.client() as http:
        chats = [Chat(http) for _ in range(3)]
        for number, chat in enumerate(chats):
            chat.ok(f"open('n.txt', 'w').write('{number}')")
        again = chats[0].ok("print(open('n.txt').read())")
        assert (again["stdout"], again["interpreter"], again["interpreter_reason"]) == ("0\n", "new", "evicted")


def test_a_graceful_stop_ends_within_its_limit(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="1") as service:
        with service.client() as http:
            Chat(http).ok("1")
        assert service.stop() == 0


def test_reset_gives_a_new_interpreter_with_the_same_files(chat: Chat) -> None:
    chat.ok("x = 1\nopen('kept.txt', 'w').write('1')")
    assert chat.http.post(f"/v1/conversations/{chat.id}/reset").status_code == 204
    after = chat.run("print(open('kept.txt').read())\nx")
    assert (after["stdout"], after["error"]["name"]) == ("1\n", "NameError")
    assert (after["interpreter"], after["interpreter_reason"]) == ("new", "reset")


def test_purge_forgets_everything(http: httpx.Client) -> None:
    chat = Chat(http)
    chat.ok("x = 1; open('a.txt', 'w').write('1')")
    chat.purge()
    assert http.get(f"/v1/conversations/{chat.id}").status_code == 404
    assert chat.run("x")["error"]["name"] == "NameError"
    assert chat.files() == []
    chat.purge()


def test_bash_and_fresh_runs_leave_the_state_of_variables_alone(chat: Chat) -> None:
    assert chat.ok("echo hi", language="bash")["interpreter"] == "new"
    assert chat.ok("x = 1")["interpreter"] == "new"
    assert chat.ok("echo $((1 + 1))", language="bash")["interpreter"] == "kept"
    assert chat.run("x", fresh=True)["error"]["name"] == "NameError"
    assert chat.ok("x")["interpreter"] == "kept"


def test_killing_everything_in_reach_costs_nothing(chat: Chat) -> None:
    chat.ok("x = 1")
    assert chat.run("import os, signal\nos.kill(-1, signal.SIGKILL)")["interpreter"] == "kept"
    assert chat.ok("print(x)")["stdout"] == "1\n"
    assert chat.run("os.kill(os.getpid(), signal.SIGKILL)")["outcome"] == "crashed"
    assert chat.ok("print(1)")["interpreter"] == "new"


def test_a_sandbox_killed_from_outside_costs_its_run_and_nothing_stored(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0") as service, service.client() as http:
        chat = Chat(http)
        chat.ok("import time\nopen('before.txt', 'w').write('1')")
        with events.executing(chat, "open('after.txt', 'w').write('2')\nprint('on')\ntime.sleep(100)") as answer:
            told = events.read(answer)
            assert any(name == "stdout" for name, _ in told)
            sandboxes.kill_all(service)
            (result,) = [body["result"] for name, body in told if name == "done"]
        assert (result["outcome"], result["interpreter"]) == ("crashed", "lost")
        after = chat.ok("import os; print(open('before.txt').read(), os.path.exists('after.txt'))")
        assert (after["stdout"], after["interpreter"]) == ("1 False\n", "new")


def test_a_purged_conversation_leaves_nothing_to_the_next_of_its_name(http: httpx.Client) -> None:
    chat = Chat(http)
    http.put(f"/v1/conversations/{chat.id}", json={"labels": {"user": "ada"}})
    old = chat.ok("print('SECRET ' * 50_000)")["execution_id"]
    chat.purge()
    assert http.put(f"/v1/conversations/{chat.id}").json()["labels"] == {}
    assert http.get(f"/v1/conversations/{chat.id}/executions/{old}/stdout").status_code == 404
    chat.purge()


def test_purge_stops_what_runs_and_what_waits(http: httpx.Client) -> None:
    chat = Chat(http)
    url = f"/v1/conversations/{chat.id}/execute"
    with events.executing(chat, "import time; time.sleep(100)") as answer:
        told = events.read(answer)
        assert next(told)[0] == "started"
        waiting = [aside(lambda: http.post(url, json={"code": "open('ran', 'w')"})) for _ in range(3)]
        queued(http, 3)
        began = time.monotonic()
        chat.purge()
        assert http.get(f"/v1/conversations/{chat.id}").status_code == 404
        (ended,) = [body["result"]["outcome"] for name, body in told if name == "done"]
    assert ended == "interrupted"
    assert {one.result(30).status_code for one in waiting} == {404}
    assert time.monotonic() - began < 50  # nobody has waited for the run's own end
    assert http.get(f"/v1/conversations/{chat.id}").status_code == 404


def test_a_run_that_waits_for_its_sandbox_can_be_interrupted(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0") as service, service.client() as http:
        chat = Chat(http)
        with events.executing(chat, "open('ran.txt', 'w')") as answer:  # the answer begins before the sandbox is there
            events.interrupt(chat, answer.headers["x-execution-id"])
            (name, body), *more = events.read(answer)
        assert (name, body["result"]["outcome"], more) == ("done", "interrupted", [])
        assert chat.files() == []


def test_a_small_cap_full_of_spares_still_serves(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="2", SANDBOX_MAX_SESSIONS="2") as service, service.client() as http:
        first, second = Chat(http), Chat(http)
        until(lambda: http.get("/healthz").json()["pool"]["ready"] == 2, "the cap is full of spares", 90)
        held = events.begin(first, "import time; time.sleep(100)")
        assert second.ok("print(2)")["stdout"] == "2\n"
        events.interrupt(first, held)


def test_a_stop_interrupts_runs_and_stores_their_files(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0", SANDBOX_STOP_GRACE_SECONDS="0.5") as service:
        with service.client() as http:
            chat = Chat(http)
            code = "open('t.txt', 'w').write('1')\nprint('on')\nimport time; time.sleep(100)"
            events.begin(chat, code, until="stdout")
        assert service.stop(60) == 0
        service.start()
        with service.client() as http:
            assert Chat(http, chat.id).files() == ["t.txt"]


def test_a_stop_lets_runs_finish_and_answers_them_and_nothing_new(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0", SANDBOX_STOP_GRACE_SECONDS="60") as service:
        with service.client() as http:
            first, other = Chat(http), Chat(http)
            url = f"/v1/conversations/{first.id}"
            http.put(url)
            run = aside(lambda: first.run("import time; time.sleep(5)\nprint('end')"))
            until(lambda: http.get(url).json()["live"], "the run has its conversation and a sandbox")
            late = aside(lambda: http.post(f"{url}/execute", json={"code": "1"}))
            queued(http, 1)
            assert service.process is not None
            service.process.send_signal(signal.SIGTERM)
            until(lambda: http.get("/readyz").status_code == 503, "it stops")
            assert http.get("/readyz").json()["status"] == "stopping"
            assert http.get("/livez").status_code == 200
            refused = http.post(f"/v1/conversations/{other.id}/execute", json={"code": "1"})
            assert (refused.status_code, refused.json()["code"]) == (503, "stopping")
            assert int(refused.headers["retry-after"]) >= 1
            turned_away = late.result(30)
            assert (turned_away.status_code, turned_away.json()["code"]) == (503, "stopping")
            result = run.result(30)
            assert (result["outcome"], result["stdout"]) == ("ok", "end\n")
        assert service.stop(30) == 0


def test_a_run_that_a_stop_interrupts_is_answered(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0", SANDBOX_STOP_GRACE_SECONDS="0.2") as service:
        with service.client() as http:
            chat = Chat(http)
            with events.executing(chat, "open('a', 'w')\nprint('on')\nimport time; time.sleep(100)") as answer:
                told = events.read(answer)
                assert any(name == "stdout" for name, _ in told)
                assert service.process is not None
                service.process.send_signal(signal.SIGTERM)
                (done,) = [body["result"] for name, body in told if name == "done"]
            assert (done["outcome"], [file["path"] for file in done["files"]]) == ("interrupted", ["a"])
        assert service.stop(25) == 0
