"""What wedges a session or hides its errors: nothing may. Weaknesses 12 to 23 of the protocol's present runner."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.runner import Runner, running
from tests.support.sessions import Session, detail
from tests.support.waiting import aside, until

TRACE = "ZeroDivisionError: division by zero\n"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A service with small sandboxes and small answers."""
    with running(
        tmp_path_factory.mktemp("small"),
        SANDBOX_WORKSPACE_TMPFS_SIZE="32m",
        SANDBOX_TMPFS_SIZE="16m",
        SANDBOX_MEMORY="512m",
        SANDBOX_PIDS_LIMIT="64",
        SANDBOX_SESSIONS_MAX_ARTIFACT_BYTES="1k",
        SANDBOX_MAX_TOTAL_ARTIFACT_BYTES="1500",
        SANDBOX_MAX_FILES_PER_EXEC="3",
    ) as service:
        yield service


@pytest.fixture
def session(small: Runner) -> Iterator[Session]:
    with small.client() as http:
        made = Session.new(http)
        yield made
        made.delete(discard=True)


def test_a_full_tmp_bricks_nothing(session: Session) -> None:
    """Weakness 12: code does not go through /tmp, so code can clean it up."""
    fill = """
f = open('/tmp/full', 'wb')
try:
    while True: f.write(bytes(1 << 20)); f.flush()
except OSError as e: print(e.errno)
"""
    assert session.out(fill) == "28\n"
    assert session.out("import os; os.unlink('/tmp/full'); print('clean')") == "clean\n"


def test_a_full_workspace_still_takes_inputs_and_code(session: Session) -> None:
    """Weakness 13: with outputs up to the last byte an upload is staged, and code can free space."""
    size = 32 << 20
    session.exec(f"open('outputs/full', 'wb').write(bytes({size}))")
    assert detail(session.put("outputs/more", b"x"))[0] == 500
    assert session.put("uploads/data.csv", b"a,b\n" * 250_000).status_code == 200
    assert (
        session.out("import os; print(os.path.getsize('uploads/data.csv')); os.unlink('outputs/full')") == "1000000\n"
    )
    assert session.paths() == ["uploads/data.csv"]
    assert session.put("outputs/more", b"x").status_code == 200


def test_more_than_fits_is_told_and_undone(session: Session) -> None:
    """Weakness 13: a run that cannot be kept says so, and leaves the files as they were."""
    session.exec("open('outputs/a', 'w').write('a')")
    assert session.put("uploads/u", bytes(20 << 20)).status_code == 200
    over = session.exec("open('outputs/over', 'wb').write(bytes(20 << 20)); print('done')")
    assert over["stdout"] == "done\n"
    assert "[sandbox] " in over["stderr"]
    assert session.paths() == ["outputs/a", "uploads/u"]


def test_a_folder_without_write_permission_is_reset(session: Session) -> None:
    """Weakness 14: reset goes by the store, and the sandbox follows whatever the rights are."""
    for _ in range(2):
        assert session.put("uploads/deep/file", b"x").status_code == 200
        session.exec("import os; os.chmod('uploads/deep', 0o555); os.chmod('uploads', 0o555)")
        assert session.post("/files/reset-inputs").json()["ok"] is True
        assert session.out("import os; print(os.listdir('uploads'))") == "[]\n"
    assert session.put("uploads/again", b"x").status_code == 200
    assert session.out("print(open('uploads/again').read())") == "x\n"


def test_as_many_processes_as_there_may_be(session: Session) -> None:
    """Weakness 15: nothing has to fork to end them, and the next call is as any other."""
    bomb = """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
            os._exit(0)
        made += 1
except OSError:
    print(made > 10)
"""
    assert session.exec(bomb)["stdout"] == "True\n"
    after = "import subprocess; print(subprocess.run(['echo', 'ok'], capture_output=True, text=True).stdout)"
    assert session.out(after) == "ok\n\n"


def test_what_was_printed_before_the_limit_is_kept(session: Session) -> None:
    """Weaknesses 16 and 18: a timeout is a fact of its own, also where code ignores signals."""
    body = session.exec(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('outputs/a', 'w').write('a'); print('before', flush=True)\ntime.sleep(60)",
        timeout_ms=1000,
    )
    assert (body["timed_out"], body["oom"], body["exit_code"], body["stdout"]) == (True, False, 124, "before\n")
    assert [item["name"] for item in body["files"]] == ["a"]
    assert body["duration_ms"] >= 1000
    assert session.out("print('next')") == "next\n"


def test_an_exit_with_124_is_no_timeout(session: Session) -> None:
    """Weakness 18."""
    body = session.exec("import sys; sys.exit(124)")
    assert (body["exit_code"], body["timed_out"], body["outcome"], body["stderr"]) == (124, False, "error", "")


def test_memory_and_signals_are_told(session: Session) -> None:
    """Weakness 18: what ended the code is a field, not to be guessed from 137."""
    oom = session.exec("x = bytearray(900 << 20)\nfor i in range(0, len(x), 4096): x[i] = 1")
    assert (oom["oom"], oom["outcome"], oom["exit_code"]) == (True, "oom", 137) or "MemoryError" in oom["stderr"]
    killed = session.exec("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert (killed["signal"], killed["exit_code"], killed["oom"], killed["interpreter"]) == (9, 137, False, "lost")
    assert session.out("print('next')") == "next\n"


def test_the_end_of_long_output_is_kept(session: Session) -> None:
    """Weakness 19: head and tail, the exception last, the whole stream to be fetched; all within the limit."""
    code = "import sys\nfor n in range(20_000): print('line', n, file=sys.stderr)\nprint('é' * 40_000)\n1 / 0"
    body = session.exec(code)
    assert body["stderr"].startswith("line 0\n")
    assert TRACE in body["stderr"]
    assert body["stderr"].endswith("\n... [truncated, stderr exceeded 32KB]")
    assert body["stdout"].endswith("\n... [truncated, stdout exceeded 32KB]")
    for name in ("stdout", "stderr"):
        assert len(body[name].encode()) <= 32_768
        assert body[f"{name}_truncated"] is True
    whole = session.http.get(f"{session.conversation}/executions/{body['execution_id']}/stderr").text
    assert whole.splitlines()[19_999] == "line 19999"


def test_outputs_that_is_taken_away_comes_back(session: Session) -> None:
    """Weakness 20: removed, replaced by a file or by a link, `outputs` goes on being collected."""
    session.exec("import shutil, os\nshutil.rmtree('outputs')")
    assert [f["name"] for f in session.exec("open('/workspace/outputs/a', 'w').write('a')")["files"]] == ["a"]
    session.exec("shutil.rmtree('outputs'); os.mkdir('elsewhere'); os.symlink('elsewhere', 'outputs')")
    linked = session.exec("open('/workspace/outputs/b', 'w').write('b')")
    assert [(f["name"], f["path"]) for f in linked["files"]] == [("b", "elsewhere/b")]
    session.exec("os.unlink('outputs'); os.symlink('/tmp', 'outputs')")
    mended = session.exec("open('/workspace/outputs/c', 'w').write('c')")
    assert [f["name"] for f in mended["files"]] == ["c"]
    assert "[sandbox] outputs had become a link" in mended["stderr"]
    session.exec("shutil.rmtree('outputs'); open('outputs', 'w').write('file')")
    mended = session.exec("open('/workspace/outputs/d', 'w').write('d')")
    assert [f["name"] for f in mended["files"]] == ["d"]


def test_what_an_answer_leaves_out_is_named(session: Session) -> None:
    """Weakness 28: skipped files are listed and can be fetched; caps are for the answer alone."""
    body = session.exec(
        "open('outputs/0big', 'wb').write(bytes(1025))\n"
        "for n in range(1, 6): open(f'outputs/{n}', 'wb').write(bytes(300))\n"
        "open('outputs/3', 'wb').write(bytes(1000))"
    )
    assert [f["path"] for f in body["files"]] == ["outputs/1", "outputs/2", "outputs/4"]
    reasons = {f["path"]: f["reason"] for f in body["skipped_files"]}
    assert reasons == {"outputs/0big": "file_bytes", "outputs/3": "total_bytes", "outputs/5": "files"}
    assert body["stderr"].startswith("[sandbox] skipped 3 output file(s) because artifact limits are ")
    assert session.get("outputs/0big") == bytes(1025)


def test_a_session_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    """Weakness 17: a create that is refused has made neither a session nor a conversation."""
    env = {"SANDBOX_BACKEND": "docker", "DOCKER_HOST": "unix:///nonexistent.sock"}
    with running(tmp_path, **env) as service, service.client() as http:
        status, text = detail(http.post("/sessions", json={"archive_key": "k"}))
        assert (status, text.split(":")[0]) == (503, "sandbox image not available yet")
        assert http.get("/v1/conversations").json()["conversations"] == []


def test_refusals_say_when_to_come_again(tmp_path: Path) -> None:
    """Weaknesses 33, 38, 39: one deadline for all waits, and health answers meanwhile."""
    env = {"SANDBOX_SESSIONS_QUEUE_TIMEOUT_SECONDS": "1.5", "SANDBOX_MAX_CONCURRENT_EXECS": "1"}
    with running(tmp_path, **env) as service, service.client() as http, ThreadPoolExecutor(12) as threads:
        one, two = Session.new(http), Session.new(http)
        one.exec("pass")
        two.exec("pass")
        going_on = threads.submit(one.exec, "import time; time.sleep(12)")
        until(lambda: one.post("/exec", code="1").status_code == 429, "the run goes on")
        waiting = [threads.submit(s.post, "/exec", code="1") for s in (one, two, one, two)]
        assert http.get("/healthz").status_code == 200
        answers = [call.result() for call in waiting]
        assert sorted({answer.json()["detail"] for answer in answers}) == ["exec queue is full", "session is busy"]
        for answer in answers:
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
        assert not going_on.done()  # so that none of them has waited twice
        assert going_on.result()["exit_code"] == 0
        assert one.out("print(1)") == "1\n"


def test_a_busy_session_is_taken_over(tmp_path: Path) -> None:
    """Weaknesses 3 and 38: who was told that the session is busy comes back with a new one and is served at once; with
    one sandbox for all, others are told that there are too many.
    """
    env = {"SANDBOX_QUEUE_TIMEOUT_SECONDS": "1", "SANDBOX_MAX_SESSIONS": "1", "SANDBOX_POOL_SIZE": "0"}
    with running(tmp_path, **env) as service, service.client() as http:
        old = Session.new(http, archive_key="chat")
        old.exec("x = 1")
        stuck = aside(lambda: old.exec("import time; time.sleep(300)"))
        until(lambda: old.post("/exec", code="1").status_code == 429, "the session is busy")
        assert detail(http.post("/sessions")) == (429, "too many active sessions")
        assert not stuck.done()  # the control: nobody else has ended it
        new = Session.new(http, archive_key="chat")
        assert new.out("print(x)") == "1\n"
        ended = stuck.result(30)
        assert (ended["outcome"], ended["exit_code"]) == ("interrupted", 130)
        assert ended["stderr"].endswith("[sandbox] the execution was interrupted")
