"""What survives: SIGKILL of the service, a lost sandbox, eviction; and what the caller is told."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from tests.support.runner import Chat, running


def test_sigkill_of_the_service_loses_no_file(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="1") as service:
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
    def sandboxes() -> list[str]:
        names = [p.stem for p in (tmp_path / "run").glob("*.json")]
        return [
            line
            for entry in Path("/proc").glob("[0-9]*/cgroup")
            for line in [_read(entry)]
            if any(name in line for name in names)
        ]

    with running(tmp_path, SANDBOX_POOL_SIZE="1") as service:
        with service.client() as http:
            Chat(http).ok("import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True); None")
        assert sandboxes()
        service.kill()
        deadline = time.monotonic() + 5
        while sandboxes() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not sandboxes()
        service.start()
        assert not [p for p in (tmp_path / "run").glob("*.json") if _old(p, service.pid)]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


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


def test_a_sandbox_that_dies_in_a_run_costs_the_run_and_nothing_stored(chat: Chat) -> None:
    chat.ok("open('before.txt', 'w').write('1')")
    result = chat.run("import os, signal\nopen('after.txt', 'w').write('2')\nos.kill(-1, signal.SIGKILL)")
    assert (result["outcome"], result["interpreter"]) == ("crashed", "lost")
    after = chat.ok("print(open('before.txt').read())")
    assert (after["stdout"], after["interpreter"]) == ("1\n", "new")
