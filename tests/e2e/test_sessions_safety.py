"""What code and callers of sessions cannot do. Weaknesses 41 to 51 of the protocol's present runner."""

from __future__ import annotations

import secrets
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support.runner import Runner, running
from tests.support.sessions import GONE, Session, detail
from tests.support.waiting import aside, until


@pytest.fixture
def session(http: httpx.Client) -> Iterator[Session]:
    made = Session.new(http)
    yield made
    made.delete(discard=True)


def on_the_host(mark: str) -> int:
    """Processes of this machine that have a text in their command line."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += mark.encode() in path.read_bytes()
        except OSError:
            continue
    return found


def test_no_process_outlives_its_run(session: Session) -> None:
    """Weakness 41: an empty environment, a session of its own and a double fork hide from no sweep."""
    mark = f"7654321.{secrets.randbelow(10**9):09}"
    code = f"""
import os, subprocess, time
subprocess.Popen(['sleep', '{mark}'], env={{}}, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve('/usr/bin/sleep', ['sleep', '{mark}'], {{}})
    os._exit(0)
time.sleep(4)
"""
    going_on = aside(lambda: session.exec(code))
    until(lambda: on_the_host(mark) >= 2, "both are seen while the run goes on")
    assert going_on.result(60)["exit_code"] == 0
    assert on_the_host(mark) == 0


def test_another_tenant_sees_no_session(tmp_path: Path, runner: Runner) -> None:
    """Weakness 42: a key reaches the sessions of its tenant, and may be kept from running code."""
    keys = tmp_path / "keys.json"
    made = {}
    for tenant, scopes in (("one", ("write", "run", "read")), ("two", ("write", "run", "read")), ("three", ("read",))):
        command = [sys.executable, "-m", "runner", "keys", "new", "--file", str(keys), "--name", tenant]
        command += ["--tenant", tenant, *(word for scope in scopes for word in ("--scope", scope))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        made[tenant] = max(done.stdout.split(), key=len)
    with running(tmp_path / "data", SANDBOX_API_KEYS_FILE=str(keys)) as service, ExitStack() as stack:
        clients = {
            name: stack.enter_context(
                httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=90)
            )
            for name, key in made.items()
        }
        one = Session.new(clients["one"], archive_key="chat")
        one.exec("open('outputs/a', 'w').write('a')")
        for path in ("/exec", "/files/list"):
            body = {"session_id": one.id, "code": "1"}
            assert clients["two"].post(path, json=body).json()["detail"] == GONE["detail"]
        assert clients["two"].delete(f"/sessions/{one.id}").json()["known"] is False
        assert Session.new(clients["two"], archive_key="chat").paths() == []
        assert clients["three"].post("/exec", json={"session_id": one.id, "code": "1"}).status_code == 403
        assert one.paths() == ["outputs/a"]


def test_a_path_through_a_link_is_judged_where_it_leads(session: Session) -> None:
    """Weakness 46: what is refused has made no folder, and nothing is followed outside."""
    session.exec("import os\nos.symlink('/tmp', 'uploads/out')\nos.symlink('../outputs', 'uploads/in')")
    session.exec("os.symlink('loop', 'uploads/loop'); os.symlink('/etc/passwd', 'outputs/passwd')")
    for path in ("uploads/out/x/y", "uploads/loop/x", "uploads/loop", "outputs/passwd"):
        for response in (session.put(path, b"x"), session.post("/files/get", path=path)):
            assert detail(response) == (400, "path resolves outside /workspace")
    assert session.out("print(os.path.exists('/tmp/x'))") == "False\n"
    inside = session.put("uploads/in/a/b", b"through a link")
    assert (inside.status_code, inside.json()["path"]) == (200, "outputs/a/b")
    assert session.get("uploads/in/a/b") == b"through a link"
    assert session.out("print(open('/workspace/outputs/a/b').read())") == "through a link\n"


def test_a_chunked_body_is_bounded(tmp_path: Path) -> None:
    """Weakness 47: what declares no length is counted as it comes."""
    with running(tmp_path, SANDBOX_SESSIONS_MAX_BODY_BYTES="64k") as service, service.client() as http:
        session = Session.new(http)
        answer = http.post(
            "/exec", content=(b" " * 4096 for _ in range(64)), headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()) == (413, {"error": "request body exceeds 65536 bytes"})
        body = b'{"session_id":"%s","code":"print(1)"}' % session.id.encode()
        pieces = (body[at : at + 7] for at in range(0, len(body), 7))
        answer = http.post("/exec", content=pieces, headers={"Content-Type": "application/json"})
        assert answer.json()["stdout"] == "1\n"  # the control: a chunked body within the limit is taken


def plain(path: Path) -> bytes:
    """What a file holds, unpacked where it is a record of the store."""
    content = path.read_bytes()
    try:
        return zlib.decompress(content)
    except zlib.error:
        return content


def test_credentials_are_never_stored_or_told(tmp_path: Path) -> None:
    """Weakness 49: not in the data folder, nor the log, nor an answer; and endpoints are the operator's choice."""
    secret = f"secret-{secrets.token_hex(12)}"
    block = {"provider": "s3", "s3_bucket": "b", "s3_region": "r", "s3_endpoint": "http://127.0.0.1:9",
             "s3_access_key": f"id-{secret}", "s3_secret_key": secret}  # fmt: skip
    env = {"SANDBOX_STORAGE_HOSTS": "127.0.0.1:9", "SANDBOX_S3_MAX_ATTEMPTS": "1"}
    with running(tmp_path / "listed", **env) as service, service.client() as http:
        session = Session.new(http, archive_key="chat")
        session.exec("open('outputs/a', 'w').write('a')")
        again = http.post("/sessions", json={"archive_key": "chat", "storage": block})
        assert again.status_code == 200
        session.id = again.json()["session_id"]
        ended = session.delete(storage=block)
        assert ended["archived"] is False
        assert secret not in str(ended)
        held = [plain(path) for path in (tmp_path / "listed").rglob("*") if path.is_file()]
        assert [content for content in held if b"127.0.0.1:9" in content]  # the control: where it leads is stored
        assert not [content for content in held if secret.encode() in content]
    with running(tmp_path / "unlisted") as service, service.client() as http:
        put = {"key": "k", "data_base64": "YQ==", "storage": {**block, "s3_endpoint": "http://169.254.169.254"}}
        status, text = detail(http.post("/storage/put", json=put))
        assert status == 400, text


def test_programs_in_the_workspace_can_be_run(session: Session) -> None:
    """Weakness 51."""
    code = (
        "import os, subprocess\nopen('tool', 'w').write('#!/bin/sh\\necho from a tool\\n')\nos.chmod('tool', 0o755)\n"
        "print(subprocess.run(['./tool'], capture_output=True, text=True, check=True).stdout, end='')"
    )
    assert session.out(code) == "from a tool\n"


def test_the_other_answers_by_setting(tmp_path: Path) -> None:
    env = {
        "SANDBOX_SESSIONS_RESET_ANSWER": "base",
        "SANDBOX_SESSIONS_INTERPRETER": "fresh",
        "SANDBOX_MAX_OUTPUT_BYTES": "2k",
        "SANDBOX_EXEC_TIMEOUT_CAP_MS": "1500",
        "SANDBOX_MAX_UPLOAD_BYTES": "3",
        "SANDBOX_PULL_ON_START": "1",
    }
    with running(tmp_path, **env) as service, service.client() as http:
        session = Session.new(http)
        assert session.post("/files/reset-inputs").json() == {"ok": True}
        assert detail(http.post("/files/reset-inputs", json={"session_id": "0" * 32}))[0] == 404
        session.exec("x = 1")
        fresh = session.exec("print('x' in globals(), __name__)\nif 1: 5")
        assert (fresh["stdout"], fresh["results"]) == ("False __main__\n", [])
        failed = session.exec("def f():\n    raise KeyError('k')\nf()")
        assert failed["exit_code"] == 1
        assert failed["stderr"].endswith("KeyError: 'k'\n")
        late = session.exec("import time; time.sleep(60)", timeout_ms=99_999)
        assert late["stderr"].endswith("exceeded 1.500s and was killed")
        assert len(session.exec("print('x' * 9999)")["stdout"]) <= 2048
        assert session.put("uploads/a", b"abc").status_code == 200
        assert detail(session.put("uploads/a", b"abcd")) == (413, "file too large")
        assert "SANDBOX_PULL_ON_START is set and has no effect" in service.log.read_text(encoding="utf-8")
