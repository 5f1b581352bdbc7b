"""``POST /run``: what a script sees, prints and ends with, and how requests that are none are refused."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any

import httpx
import pytest

from runner.cli.local_service import LocalService
from tests.support.oneshot import OneShot, b64, files_of, oneshot, open_service

__all__ = ["oneshot", "open_service"]

PLAIN = {
    "exit_code", "stdout", "stderr", "artifacts", "duration_ms", "timed_out", "output_truncated", "artifacts_truncated",
    "container_id",
}  # fmt: skip


def test_the_answer_has_the_fields_of_the_protocol(oneshot: OneShot) -> None:
    answer = oneshot.run("print(1)")
    assert set(answer) == PLAIN
    assert answer["stdout"] == "1\n"
    assert answer["container_id"] is None
    assert [answer[name] for name in ("timed_out", "output_truncated", "artifacts_truncated")] == [False] * 3
    assert answer["artifacts"] == []


@pytest.mark.parametrize(
    ("language", "code", "status"),
    [
        ("python", "import sys; sys.exit(3)", 3),
        ("python", "1/0", 1),
        ("python", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("python", "import os; os._exit(7)", 7),
        ("bash", "exit 4", 4),
        ("bash", "kill -9 $$", -9),
        ("bash", "false; true", 0),
        ("bash", "set -e; false; echo never", 1),
        ("bash", "no-such-command", 127),
    ],
)
def test_exit_status(oneshot: OneShot, language: str, code: str, status: int) -> None:
    assert oneshot.run(code, language)["exit_code"] == status


def test_a_traceback_is_that_of_a_script(oneshot: OneShot) -> None:
    answer = oneshot.run("def f():\n    raise ValueError('x')\n\nf()\n")
    assert answer["stderr"].startswith('Traceback (most recent call last):\n  File "/tmp/sandbox_main_')
    assert answer["stderr"].endswith("ValueError: x\n")
    assert answer["stderr"].count("File ") == 2
    assert answer["artifacts"] == []


def test_where_a_script_runs(oneshot: OneShot) -> None:
    python = "import os, sys; print(os.getcwd(), os.environ['HOME'], os.path.samefile('/work', '/workspace'))\n"
    assert oneshot.out(python + "print(repr(sys.stdin.read()), __name__)") == "/workspace /work True\n'' __main__\n"
    assert oneshot.out('pwd; cd; pwd; cd /work && test /work -ef "$HOME" && cat | wc -c', "bash") == "/work\n/work\n0\n"


@pytest.mark.parametrize("folder", ["/work", "/workspace", ".", "~"])
def test_both_names_of_the_folder(oneshot: OneShot, folder: str) -> None:
    """sec 4.2, 6.2: inputs lie there, and what is written there comes back."""
    code = f"cat {folder}/in.txt > {folder}/out.txt"
    assert files_of(oneshot.run(code, "bash", {"in.txt": b"through"})) == {"out.txt": b"through"}
    code = f"import os; p = os.path.expanduser('{folder}'); open(p + '/o', 'w').write(open(p + '/in.txt').read())"
    assert files_of(oneshot.run(code, files={"in.txt": b"through"})) == {"o": b"through"}


def test_the_folder_is_empty(oneshot: OneShot) -> None:
    assert oneshot.out("ls -A", "bash") == ""
    assert oneshot.out("ls -A", "bash", files={"in.txt": b"1"}) == "in.txt\n"
    lease = oneshot.lease("mkdir outputs; echo 1 > outputs/a", language="bash")
    assert oneshot.out("ls -A; cat outputs/a; mkdir uploads", "bash", container_id=lease) == "outputs\n1\n"


def test_nothing_is_kept_without_a_lease(oneshot: OneShot) -> None:
    oneshot.run("open('left', 'w').write('x'); open('/tmp/left', 'w').write('x'); shown = 1")
    assert oneshot.out("import os; print(os.path.exists('left'), os.path.exists('/tmp/left'))") == "False False\n"
    assert oneshot.run("print(shown)")["exit_code"] == 1


def test_a_run_beyond_its_time_keeps_what_there_is(oneshot: OneShot) -> None:
    """Trap 3: partial output and files come back. Trap 1: the limit that was asked for is the one that holds."""
    began = time.monotonic()
    answer = oneshot.run("print('early'); open('part.txt', 'w').write('half')\nwhile True: pass", timeout_secs=1)
    assert (answer["exit_code"], answer["timed_out"]) == (-1, True)
    assert answer["stdout"] == "early\n"
    assert files_of(answer) == {"part.txt": b"half"}
    assert "ended after 1 second" in answer["stderr"]
    assert 900 <= answer["duration_ms"] < 15_000
    assert time.monotonic() - began < 30
    bash = oneshot.run("echo early; echo x > f; sleep 60", "bash", timeout_secs=1)
    assert (bash["exit_code"], bash["timed_out"], bash["stdout"]) == (-1, True, "early\n")
    assert files_of(bash) == {"f": b"x\n"}


def test_the_limit_is_never_less_than_a_second(oneshot: OneShot) -> None:
    assert oneshot.out("import time; time.sleep(0.3); print('there')", timeout_secs=0) == "there\n"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"language": "python"}, "code"),
        ({"code": "1"}, "language"),
        ({"language": "ruby", "code": "1"}, "language"),
        ({"language": "python", "code": 1}, "code"),
        ({"language": "python", "code": "1", "files": None}, "files"),
        ({"language": "python", "code": "1", "files": [{"name": "a"}]}, "content_b64"),
        ({"language": "python", "code": "1", "timeout_secs": -1}, "timeout_secs"),
        ({"language": "python", "code": "1", "timeout_secs": "5"}, "timeout_secs"),
        ({"language": "python", "code": "1", "timeout_secs": 1.5}, "timeout_secs"),
        ({"language": "python", "code": "1", "keep_alive": "yes"}, "keep_alive"),
        ([], "object"),
    ],
)
def test_what_is_no_request(oneshot: OneShot, body: Any, says: str) -> None:
    response = oneshot.http.post("/run", json=body)
    assert response.status_code == 400
    assert set(response.json()) == {"error"}
    assert says in response.json()["error"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"language":"python","code":"1"} x'])
def test_what_is_no_json(oneshot: OneShot, content: bytes) -> None:
    response = oneshot.http.post("/run", content=content)
    assert response.status_code == 400
    assert set(response.json()) == {"error"}


def test_unknown_fields_and_media_types_are_passed_over(oneshot: OneShot) -> None:
    body = {"language": "bash", "code": "echo 1", "later": {"a": 1}, "timeout_secs": None, "container_id": None}
    response = oneshot.http.post("/run", content=json.dumps(body), headers={"Content-Type": "text/plain"})
    assert response.json()["stdout"] == "1\n"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\\b", "a\0b", "n" * 256, "ж" * 128, "n" * 5000]
)
def test_unsafe_names_of_inputs(oneshot: OneShot, name: str) -> None:
    answer = oneshot.run("print(1)", files={name: b"x"})
    assert (answer["exit_code"], answer["stdout"], answer["artifacts"], answer["duration_ms"]) == (2, "", [], 0)
    assert answer["stderr"].startswith("sandbox-agent: ")
    assert set(answer) == PLAIN


@pytest.mark.parametrize("name", ["n" * 255, "ж" * 127])
def test_names_as_long_as_a_file_can_have(oneshot: OneShot, name: str) -> None:
    assert oneshot.out("import os; print(os.listdir())", files={name: b"x"}) == f"{[name]}\n"


def test_base64_is_read_leniently_and_refused_as_a_run(oneshot: OneShot) -> None:
    body = {"language": "bash", "code": "cat a", "files": [{"name": "a", "content_b64": " aG\nk*= "}]}
    assert oneshot.http.post("/run", json=body).json()["stdout"] == "hi"
    body["files"] = [{"name": "a", "content_b64": "aGk"}]
    answer = oneshot.http.post("/run", json=body).json()
    assert answer["exit_code"] == 2
    assert "cannot be decoded" in answer["stderr"]


def test_the_last_of_two_inputs_of_one_name_counts(oneshot: OneShot) -> None:
    files = [{"name": "a", "content_b64": b64(content)} for content in (b"first", b"second")]
    body = {"language": "bash", "code": "cat a", "files": files}
    assert oneshot.http.post("/run", json=body).json()["stdout"] == "second"


def test_bodies_beyond_96_mib(open_service: LocalService, oneshot: OneShot) -> None:
    """By the length that is announced, and by what comes where none is."""
    connection = http.client.HTTPConnection("127.0.0.1", open_service.port, timeout=60)
    connection.putrequest("POST", "/run")
    connection.putheader("Content-Length", str((96 << 20) + 1))
    connection.endheaders(b"{")
    refused = connection.getresponse()
    assert refused.status == 413
    assert "smaller files" in json.loads(refused.read())["error"]
    connection.close()

    def flood() -> Any:
        for _ in range(97):
            yield b" " * (1 << 20)

    try:
        response = oneshot.http.post("/run", content=flood())
    except (httpx.WriteError, httpx.RemoteProtocolError):
        return  # it was cut off while it sent: what it was told is not always read
    assert response.status_code == 413
    assert set(response.json()) == {"error"}


def test_inputs_of_40_mib_arrive(oneshot: OneShot) -> None:
    content = bytes(range(256)) * (40 << 12)
    code = "import hashlib; print(hashlib.sha256(open('big', 'rb').read()).hexdigest())"
    import hashlib

    assert oneshot.out(code, files={"big": content}).strip() == hashlib.sha256(content).hexdigest()


def test_network_where_there_is_none(oneshot: OneShot) -> None:
    assert oneshot.http.get("/healthz").json()["egress"] is False
    response = oneshot.post("print(1)", network=True)
    assert response.status_code == 400
    assert "install packages" in response.json()["error"]
    response = oneshot.post("print(1)", network=True, container_id="sbx-1-2-3")
    assert response.status_code == 400
    lease = oneshot.lease()
    assert oneshot.run("print(1)", network=True, container_id=lease)["stdout"] == "1\n"


def test_other_methods_and_paths_answer_in_this_form(oneshot: OneShot) -> None:
    for method, path, status in (("GET", "/run", 405), ("POST", "/container/x", 405), ("DELETE", "/container/", 404)):
        response = oneshot.http.request(method, path)
        assert response.status_code == status, path
        assert set(response.json()) == {"error"}


def test_runs_at_once_wait_a_little_for_a_place(tmp_path: Any) -> None:
    """Trap 8: a few more runs than may go on at once are not refused; without the wait they are, at once."""
    from tests.support.runner import running

    for wait, expected in (("20", [200, 200, 200]), ("0", [200, 503, 503])):
        env = {"SANDBOX_ONESHOT_AUTH": "none", "SANDBOX_MAX_CONCURRENT": "1", "SANDBOX_ONESHOT_QUEUE_SECS": wait}
        with running(tmp_path / wait, **env) as service:
            found: list[httpx.Response] = []
            with httpx.Client(base_url=service.url, timeout=120) as client:
                body = {"language": "bash", "code": "sleep 1"}

                def post(client: httpx.Client = client, body: Any = body, found: Any = found) -> None:
                    found.append(client.post("/run", json=body))

                threads = [threading.Thread(target=post) for _ in expected]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            assert sorted(each.status_code for each in found) == expected
            for refused in (each for each in found if each.status_code == 503):
                assert set(refused.json()) == {"error"}
                assert refused.headers["Retry-After"] == "1"
