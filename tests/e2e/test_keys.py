"""Keys over HTTP, as an operator uses them: made, used, limited, revoked while the service runs; starts refused."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from runner.cli.local_service import LocalService, ServiceFailed
from runner.cli.main import app
from tests.support.runner import Chat, Runner, running

PATH = {"PATH": "/usr/bin:/bin"}


class Keys:
    """A service with a file of keys, and the command that changes it."""

    def __init__(self, runner: Runner, file: Path) -> None:
        self.runner, self.file = runner, file

    def command(self, *arguments: str) -> str:
        """``foliobox keys …``; gives what it printed."""
        return command(self.file, *arguments)

    def new(self, name: str, *more: str, tenant: str = "acme") -> httpx.Client:
        """A client with a new key, as soon as the service knows it."""
        secret = self.command("new", "--name", name, "--tenant", tenant, *more)
        headers = {"Authorization": f"Bearer {secret}"}
        until(lambda: httpx.get(f"{self.runner.url}/no", headers=headers).status_code != 401, 30)
        return httpx.Client(base_url=self.runner.url, headers=headers, timeout=60)


def command(file: Path, *arguments: str) -> str:
    """The command in this process, which saves the start of another one."""
    done = CliRunner().invoke(app, ["keys", *arguments, "--file", str(file)], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def until(condition: Callable[[], bool], limit_s: float) -> None:
    """Until it holds; each look is a request and takes its time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    """One service for all of these tests."""
    folder = tmp_path_factory.mktemp("keys")
    file = folder / "keys.json"
    command(file, "new", "--name", "first", "--tenant", "first")
    settings = {"SANDBOX_API_KEYS_FILE": str(file), "SANDBOX_POOL_SIZE": "0"}
    with running(folder / "data", **settings) as runner:
        yield Keys(runner, file)


def test_a_key_comes_and_goes_without_a_restart(keys: Keys) -> None:
    with keys.new("gateway") as http:
        assert http.put("/v1/conversations/mine").status_code == 201
        line = [sys.executable, "-P", "-m", "runner", "keys", "revoke", "gateway"]
        env = {**PATH, "SANDBOX_API_KEYS_FILE": str(keys.file)}
        done = subprocess.run(line, env=env, capture_output=True, text=True, check=True, timeout=60)
        assert (done.stdout, done.stderr) == ("", "The key gateway is revoked.\n")
        until(lambda: http.get("/v1/conversations/mine").status_code == 401, 2)  # as docs/operating.md says
        answer = http.get("/v1/conversations/mine")
        assert answer.headers["www-authenticate"] == "Bearer"
        assert "not known" in answer.json()["detail"]


def test_both_kinds_of_key_work_and_tenants_do_not_meet(keys: Keys) -> None:
    with keys.new("a", tenant="a") as one, keys.new("b", tenant="b") as two, keys.runner.client() as operator:
        for http, text in ((one, b"one"), (two, b"two"), (operator, b"operator")):
            assert http.put("/v1/conversations/shared-id/files/x", content=text).status_code == 201
        for http, text in ((one, b"one"), (two, b"two"), (operator, b"operator")):
            assert http.get("/v1/conversations/shared-id/files/x").content == text
            assert [c["id"] for c in http.get("/v1/conversations").json()["conversations"]] == ["shared-id"]
        two.delete("/v1/conversations/shared-id")
        assert one.get("/v1/conversations/shared-id/files/x").content == b"one"


def test_a_key_that_only_runs_makes_its_conversation(keys: Keys) -> None:
    with keys.new("runs", "--scope", "run", tenant="runs") as http:
        assert Chat(http, "made-by-a-run").ok("print(1)")["stdout"] == "1\n"
        refused = http.get("/v1/conversations/made-by-a-run")
        assert (refused.status_code, refused.json()["scope"]) == (403, "read")
        assert http.put("/v1/conversations/other").json()["scope"] == "write"


def test_a_key_ends_at_its_time(keys: Keys) -> None:
    with keys.new("short") as http:
        entries = json.loads(keys.file.read_text())
        entry = next(entry for entry in entries["keys"] if entry["name"] == "short")
        entry["expires_at"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 2))
        keys.file.write_text(json.dumps(entries))
        assert http.get("/v1/conversations").status_code == 200
        until(lambda: http.get("/v1/conversations").status_code == 401, 20)
        assert "expired" in http.get("/v1/conversations").json()["detail"]


def test_a_broken_file_keeps_the_keys_and_says_so_once(keys: Keys) -> None:
    with keys.new("stays") as http:
        good = keys.file.read_bytes()
        keys.file.write_bytes(good[:-20])

        def told() -> int:
            assert http.get("/v1/conversations").status_code == 200
            return keys.runner.log.read_text().count("the file of keys cannot be used")

        before = told()
        until(lambda: told() > before, 20)
        keys.file.write_bytes(good)
        with keys.new("later") as other:
            assert other.get("/v1/conversations").status_code == 200
        assert told() == before + 1


def test_too_many_requests_a_minute(keys: Keys) -> None:
    with keys.new("slow", "--requests-per-minute", "60") as http, keys.new("other") as other:
        answers = [http.get("/v1/conversations") for _ in range(80)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert {answer.status_code for answer in answers} == {200, 429}
        assert refused[-1].json()["code"] == "rate_limited"
        assert refused[-1].headers["retry-after"] == "1"
        assert other.get("/v1/conversations").status_code == 200
        time.sleep(int(refused[-1].headers["retry-after"]))
        assert http.get("/v1/conversations").status_code == 200


def test_too_many_requests_at_a_time(keys: Keys) -> None:
    with keys.new("narrow", "--concurrent", "1") as http:
        head = "PUT /v1/conversations/c/files/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
        head += f"Authorization: {http.headers['authorization']}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", keys.runner.port), 30) as sock:
            sock.sendall(head.encode())
            until(lambda: http.get("/v1/conversations").status_code == 429, 5)
            answer = http.get("/v1/conversations")
            assert (answer.json()["limit"], answer.headers["retry-after"]) == (1, "1")
            sock.sendall(b"done")
            assert sock.recv(100).startswith(b"HTTP/1.1 201")
        until(lambda: http.get("/v1/conversations/c/files/slow").content == b"done", 5)


def test_uploads_of_a_key_may_be_smaller_than_the_deployments(keys: Keys) -> None:
    with keys.new("small", "--upload-bytes", "1k") as http, keys.new("large") as other:
        for content in (b"x" * 1025, iter([b"x" * 1000, b"x" * 25])):
            answer = http.put("/v1/conversations/u/files/x", content=content)
            assert (answer.status_code, answer.json()["limit"]) == (413, 1024)
        assert http.put("/v1/conversations/u/files/x", content=b"x" * 1024).status_code == 201
        assert other.put("/v1/conversations/u/files/y", content=b"x" * 1025).status_code == 201


def test_a_tenant_has_no_more_sandboxes_than_its_keys_allow(keys: Keys) -> None:
    """Its own idle conversation gives way; another tenant's does not, and is not limited by it."""
    with keys.new("one", "--sandboxes", "1", tenant="one") as http, keys.new("free", tenant="free") as other:
        chats = [Chat(other), Chat(http), Chat(http)]
        for chat in chats:
            chat.ok("kept = 1")
        assert chats[1].ok("1")["interpreter_reason"] == "evicted"
        assert chats[0].ok("kept")["interpreter"] == "kept"
        for chat in chats:
            chat.purge()


def test_metrics_count_and_name_nobody(keys: Keys) -> None:
    with keys.new("watcher", "--scope", "metrics", tenant="ops") as http, keys.new("user", tenant="user-7") as user:
        chat = Chat(user, "conversation-of-user-7")
        chat.ok("1")
        assert chat.run("1 / 0")["outcome"] == "error"
        assert chat.put("outputs/private.txt", b"x").status_code == 201
        assert chat.get("outputs/missing.txt").status_code == 404
        answer = http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert user.get("/metrics").json()["scope"] == "metrics"
        found = {
            (sample.name, *sorted(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }
        assert found["foliobox_runs_total", "ok"] >= 1
        assert found["foliobox_runs_total", "error"] >= 1
        assert found["foliobox_errors_total", "not_found"] >= 1
        assert found["foliobox_errors_total", "unauthorized"] >= 1
        assert found["foliobox_http_requests_total", "/v1/conversations/{id}/execute", "2xx", "POST"] >= 2
        assert found["foliobox_http_requests_total", "/v1/conversations/{id}/files/{path}", "4xx", "GET"] >= 1
        assert found["foliobox_http_requests_total", "4xx", "GET", "none"] >= 1
        assert found["foliobox_sandboxes_live",] >= 1
        assert found["foliobox_store_free_bytes",] > 1 << 20
        assert found["foliobox_event_loop_lag_seconds_count",] >= 1
        assert ("foliobox_queue_length",) in found
        assert ("process_resident_memory_bytes",) in found
        for word in ("user-7", "private", "missing", "watcher", "acme", chat.id):
            assert word not in answer.text
        chat.purge()


def test_no_key_is_in_the_log(keys: Keys) -> None:
    with keys.new("logged") as http:
        secret = http.headers["authorization"].split()[1]
        http.get("/v1/conversations")
        httpx.get(f"{keys.runner.url}/v1/conversations", headers={"Authorization": f"Bearer {secret[:-1]}"})
        log = keys.runner.log.read_text()
        assert '"key": "logged"' in log
        assert not re.search(r"fbx_[0-9A-Za-z]{20}", log)
        assert keys.runner.key not in log


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [
        (None, 0o600, "No such file"),
        (b"", 0o600, "not JSON"),
        (b'{"keys": [{"name": "a", "sha256": "x", "tenant": "t"}]}', 0o600, r"keys\[0\].sha256 must be 64"),
        (b'{"keys": []}', 0o666, "others may write"),
    ],
)
def test_files_that_stop_the_start(tmp_path: Path, content: bytes | None, mode: int, told: str) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_bytes(content)
        file.chmod(mode)
    with pytest.raises(ServiceFailed, match=told) as caught:
        LocalService(tmp_path / "data", {**PATH, "SANDBOX_API_KEYS_FILE": str(file)}).start()
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({}, "SANDBOX_API_KEY is not set"),
        ({"SANDBOX_API_KEY": " "}, "SANDBOX_API_KEY is not set"),
        ({"SANDBOX_ALLOW_NO_AUTH": "1"}, "loopback only, not on 0.0.0.0"),
        ({"SANDBOX_API_KEYS_FILE": "/nonexistent/keys.json"}, "No such file"),
        ({"SANDBOX_API_KEYS_FILE": "keys.json"}, "an absolute path"),
        ({"SANDBOX_API_KEY": "k" * 2000}, "longer than 1024"),
        ({"SANDBOX_API_KEYFILE": "x"}, "SANDBOX_API_KEY"),
    ],
)
def test_a_service_that_anybody_could_use_is_not_started(tmp_path: Path, env: dict[str, str], told: str) -> None:
    """Refused before anything listens: the data folder is not even made."""
    line = [sys.executable, "-P", "-m", "runner", "serve", "--host", "0.0.0.0", "--port", "0"]
    folder = {"SANDBOX_DATA_DIR": str(tmp_path / "data")}
    done = subprocess.run(line, env={**PATH, **folder, **env}, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "data").exists()


def test_without_a_key_on_loopback_it_serves(tmp_path: Path, runner: Runner) -> None:
    """The control of the refusals above: what makes them refuse is the address."""
    service = LocalService(tmp_path, {**runner.env, "SANDBOX_ALLOW_NO_AUTH": "1", "SANDBOX_POOL_SIZE": "0"}, key="")
    service.start()
    try:
        with httpx.Client(base_url=service.url) as http:
            assert http.get("/v1/conversations").status_code == 200
            assert http.get("/metrics").status_code == 200
            assert http.get("/docs").status_code == 200
    finally:
        service.stop()


def test_the_service_says_which_files_it_reads(keys: Keys) -> None:
    """`doctor` tries the file as a start would."""
    env = {**PATH, "SANDBOX_API_KEYS_FILE": str(keys.file), "COLUMNS": "200"}
    line = [sys.executable, "-P", "-m", "runner", "doctor", "--all"]
    assert os.access(keys.file, os.R_OK)
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert str(keys.file) in done.stdout
    assert "SANDBOX_API_KEY is not set" not in done.stdout
    assert "cannot be used: " not in done.stdout
