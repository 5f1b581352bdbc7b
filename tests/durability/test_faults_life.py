"""Faults of the service's life: stopped with runs going on, clients that leave, races, a log that nobody reads."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.durability.conftest import Tell
from tests.durability.support import counts, service
from tests.durability.support.client import files
from tests.hostile.support import outside
from tests.support.runner import Runner

pytestmark = pytest.mark.timeout(counts.limit(300))

STOP_S = 20.0
LEAVE_S = 2.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A service for the faults that do not end it."""
    with service.running(tmp_path_factory.mktemp("life") / "data", SANDBOX_POOL_SIZE="1") as runner:
        yield runner


def staged(runner: Runner) -> list[str]:
    """Files under way."""
    return os.listdir(runner.data / "store" / "staging")


def test_stopped_with_runs_going_on(tmp_path: Path, tell: Tell) -> None:
    """Fault 2: SIGTERM while two conversations run. The status is 0, in time, and what they had written is stored."""
    data = tmp_path / "data"
    runner = service.make(data, SANDBOX_POOL_SIZE="2", SANDBOX_STOP_GRACE_SECONDS="1").start()
    written = [threading.Event(), threading.Event()]

    def run(number: int) -> None:
        code = "open('first', 'w').write('written'); print('written', flush=True); import time; time.sleep(100)"
        url = f"/v1/conversations/stop-{number}/execute"
        events = {"Accept": "text/event-stream"}
        with (
            contextlib.suppress(httpx.TransportError),
            runner.client() as http,
            http.stream("POST", url, json={"code": code}, headers=events) as response,
        ):
            for line in response.iter_lines():
                if '"written' in line:
                    written[number].set()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for event in written:
        assert event.wait(30)
    began = time.monotonic()
    assert runner.stop(STOP_S) == 0
    took = time.monotonic() - began
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    with service.running(data, SANDBOX_POOL_SIZE="0") as again, again.client() as http:
        for number in range(2):
            response = http.get(f"/v1/conversations/stop-{number}/files/first")
            assert (response.status_code, response.text) == (200, "written")
    tell(f"2 runs, stopped in {took:.1f} s with status 0, 2 results stored")


def test_a_client_that_leaves_in_the_middle_of_an_upload(shared: Runner, tell: Tell) -> None:
    """Fault 15: the staging is gone and the service free within 2 s, and nothing was stored."""
    slowest = 0.0
    with shared.client() as http:
        for number in range(counts.times(4)):
            with socket.create_connection(("127.0.0.1", shared.port)) as sock:
                head = f"PUT /v1/conversations/leaver/files/part-{number} HTTP/1.1\r\nHost: x\r\n"
                head += f"Authorization: Bearer {shared.key}\r\nContent-Length: {20 << 20}\r\n\r\n"
                sock.sendall(head.encode() + os.urandom(3 << 20))
                outside.wait_for(lambda: bool(staged(shared)), "the upload is under way")
            left = time.monotonic()
            outside.wait_for(lambda: not staged(shared), "the staging is gone", LEAVE_S)
            slowest = max(slowest, time.monotonic() - left)
        assert files(http, "leaver") is None  # not even a conversation
        assert http.put("/v1/conversations/leaver/files/whole", content=b"whole").status_code == 201
    tell(f"{counts.times(4)} uploads left, staging gone after at most {slowest * 1000:.0f} ms")


def test_a_client_that_leaves_in_the_middle_of_a_download(shared: Runner, tell: Tell) -> None:
    """Fault 15: the object's file is closed within 2 s."""
    with shared.client() as http:
        http.put("/v1/conversations/leaver/files/large", content=os.urandom(32 << 20))

    def opened() -> list[str]:
        return [path for path in outside.descriptors(shared.pid).values() if "/store/objects/" in path]

    outside.wait_for(lambda: not opened(), "nothing is open")
    with socket.create_connection(("127.0.0.1", shared.port)) as sock:
        head = "GET /v1/conversations/leaver/files/large HTTP/1.1\r\nHost: x\r\n"
        sock.sendall(f"{head}Authorization: Bearer {shared.key}\r\n\r\n".encode())
        assert sock.recv(1000).startswith(b"HTTP/1.1 200")
        outside.wait_for(lambda: bool(opened()), "the download is under way")
    outside.wait_for(lambda: not opened(), "the file is closed", LEAVE_S)
    tell("1 download left, its file closed in time")


def test_purge_against_runs_uploads_and_resets(shared: Runner, tell: Tell) -> None:
    """Fault 18: whoever wins, every answer is one of those foreseen, and a purge leaves nothing that comes back."""
    seed = counts.seed()
    dice = random.Random(seed)
    seen: dict[int, int] = {}
    lock = threading.Lock()
    expected = {200, 201, 204, 404, 409, 429, 503}

    def attack(name: str, own: random.Random) -> None:
        with shared.client() as http:
            for _ in range(5):
                at = f"/v1/conversations/{name}"
                kind = own.choice(("run", "put", "purge", "reset", "get"))
                response = (
                    http.post(f"{at}/execute", json={"code": "open('f', 'a').write('x')"}) if kind == "run"
                    else http.put(f"{at}/files/{own.randrange(3)}", content=b"x" * 1000) if kind == "put"
                    else http.delete(at) if kind == "purge"
                    else http.post(f"{at}/reset") if kind == "reset"
                    else http.get(f"{at}/files")
                )  # fmt: skip
                with lock:
                    seen[response.status_code] = seen.get(response.status_code, 0) + 1

    for number in range(counts.times(2)):
        name = f"raced-{number}"
        threads = [threading.Thread(target=attack, args=(name, random.Random(dice.random()))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with shared.client() as http:
            assert set(seen) <= expected, f"seed {seed}: {seen}"
            assert http.delete(f"/v1/conversations/{name}").status_code == 204
            assert http.delete(f"/v1/conversations/{name}").status_code == 204
            assert http.get(f"/v1/conversations/{name}/files").status_code == 404
            listed = http.get("/v1/conversations", params={"limit": 1000}).json()["conversations"]
            assert name not in [item["id"] for item in listed]
            http.put(f"/v1/conversations/{name}/files/fresh", content=b"fresh")
            assert set(files(http, name) or {}) == {"fresh"}
            result = http.post(
                f"/v1/conversations/{name}/execute", json={"code": "import os; print(sorted(os.listdir()))"}
            )
            assert "fresh" in result.json()["stdout"]
            assert "'f'" not in result.json()["stdout"]
            assert http.delete(f"/v1/conversations/{name}").status_code == 204
    tell(f"{sum(seen.values())} racing requests, answers {dict(sorted(seen.items()))}, nothing came back (seed {seed})")


def test_a_log_that_nobody_reads(tmp_path: Path, tell: Tell) -> None:
    """Fault 26: standard error is a full pipe. Requests go on, and the lines dropped are counted."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    blocked = ("sh", "-c", f'exec "$@" 2>{pipe}', "sh")
    try:
        with service.running(tmp_path / "data", blocked, SANDBOX_POOL_SIZE="0", SANDBOX_LOG_LEVEL="debug") as runner:
            slowest = 0.0
            with runner.client() as http:
                http.timeout = httpx.Timeout(10)
                for number in range(700):
                    began = time.monotonic()
                    path = f"/v1/conversations/{'l' * 100}-{number % 7}/files/{'missing' * 10}"
                    assert http.get(path).status_code == 404
                    slowest = max(slowest, time.monotonic() - began)
                assert http.put("/v1/conversations/logged/files/a", content=b"a").status_code == 201
            held = os.read(reader, 1 << 20)
            assert len(held) >= 60_000, "the pipe was never full"
    finally:
        os.close(reader)
    tell(f"701 requests with a full log pipe, the slowest took {slowest * 1000:.0f} ms")
