"""Case 56: requests made from the OpenAPI document, right and wrong ones, against the real service.

Each answer must be one of ours: below 500, a problem document where it is an error, and silent about this host.
Addresses are led to conversations, files and executions that exist, most of the time; a fuzzer that only ever
meets 404 proves little. The control asks the same of an application with a fault in it, and must find that.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
import schemathesis
import uvicorn
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis.errors import Unsatisfiable
from schemathesis import Case as GenericCase
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from starlette.responses import Response

from tests.support.runner import Chat, Runner, running

PROTOCOLS = ("/sessions", "/exec", "/files", "/storage", "/run", "/container")  # each has its own shape of errors
TOTAL = 1500 * int(os.environ.get("FOLIOBOX_REPEAT", "1"))
SEED = int(os.environ.get("FOLIOBOX_SEED", "0")) or secrets.randbelow(1 << 32)
SLOWEST_S = 30.0
KNOWN = [f"fuzz-{number}" for number in range(3)]
PATHS = ["uploads/a.txt", "outputs/b.bin", "uploads/ä/ö.txt", "uploads"]
Case = GenericCase[Any]
Send = Callable[[Case, "dict[str, str]"], "requests.Response"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A service whose runs are short."""
    short = {"SANDBOX_EXEC_TIMEOUT_CAP_MS": "300", "SANDBOX_POOL_SIZE": "1", "SANDBOX_QUEUE_TIMEOUT_SECONDS": "5"}
    with running(tmp_path_factory.mktemp("fuzz"), **short) as service:
        yield service


class Fuzzer:
    """Sends what was generated and keeps what was wrong with the answers."""

    def __init__(self, send: Send, key: str, known: dict[str, list[str]]) -> None:
        self.random = random.Random(SEED)
        self.statuses: Counter[int] = Counter()
        self.faults: list[str] = []
        self._send, self._key, self._known = send, key, known

    def one(self, case: Case) -> None:
        """One request."""
        self._lead(case)
        began = time.monotonic()
        try:
            answer = self._send(case, {"Authorization": f"Bearer {self._key}"})
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
            return  # cannot be sent at all
        self.statuses[answer.status_code] += 1
        for fault in self._faults(answer, time.monotonic() - began):
            self.faults.append(f"{case.method} {case.formatted_path} {case.query} {case.body!r:.200}: {fault}")

    def _lead(self, case: Case) -> None:
        """To things that exist, mostly."""
        for name, values in self._known.items():
            if name in case.path_parameters and self.random.random() < 0.8:
                case.path_parameters[name] = self.random.choice(values)
        for name in [name for name in case.headers or {} if name.lower() == "authorization"]:
            del case.headers[name]

    def _faults(self, answer: requests.Response, took_s: float) -> Iterator[str]:
        foreign = urlsplit(answer.request.url or "").path.startswith(PROTOCOLS)
        told = foreign and '"code":"session_fault"' in answer.text  # 500 is that protocol's word for a name in the way
        if answer.status_code >= 500 and not told:
            yield f"status {answer.status_code}: {answer.text[:300]}"
        if took_s > SLOWEST_S:
            yield f"took {took_s:.1f} s"
        if answer.status_code >= 400 and answer.request.method != "HEAD":
            kind = answer.headers.get("content-type", "")
            if foreign:
                if kind != "application/json" or not answer.json().keys() & {"error", "detail"}:
                    yield f"not an error of its protocol: {answer.text[:200]}"
            elif kind != "application/problem+json":
                yield f"an error of type {kind!r}: {answer.text[:200]}"
            elif answer.json()["request_id"] != answer.headers["x-request-id"]:
                yield "two request ids"
        ours = ("Traceback", "site-packages") if answer.status_code >= 400 else ()  # a result tells of user code
        for word in (*ours, "/runner/", self._key):
            if word in answer.text or word in str(answer.headers):
                yield f"tells {word!r}: {answer.text[:300]}"


def sender(url: str) -> Send:
    """Sends cases to a service over one connection."""
    session = requests.Session()

    def send(case: Case, headers: dict[str, str]) -> requests.Response:
        given = case.as_transport_kwargs(base_url=url, headers=headers)
        return session.request(**given, timeout=60, allow_redirects=False)

    return send


def generate(document: dict[str, Any], total: int, use: Callable[[Case], None]) -> int:
    """Give ``total`` cases to ``use``, evenly over all operations, right and wrong; gives how many that were."""
    schema = schemathesis.openapi.from_dict(document)
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    sources = []
    for operation, mode in itertools.product(operations, (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)):
        if mode is GenerationMode.NEGATIVE and not (operation.path_parameters or operation.query or operation.body):
            continue  # nothing of it can be wrong
        sources.append(operation.as_strategy(generation_mode=mode))
    count = 0
    for number, source in enumerate(sources):

        @seeded(SEED + number)
        @settings(
            max_examples=max(1, total // len(sources)),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(case=source)
        def go(case: Case) -> None:
            nonlocal count
            count += 1
            use(case)

        with contextlib.suppress(Unsatisfiable):  # of a route where nothing can be wrong
            go()
    return count


@pytest.mark.timeout(1200)
def test_no_generated_request_meets_a_fault(target: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    with target.client() as http:
        executions = []
        for name in KNOWN:
            chat = Chat(http, name)
            executions.append(chat.ok("print('x' * 200_000)")["execution_id"])
            for path in PATHS[:3]:
                assert chat.put(path, b"content").status_code == 201
        document = http.get("/openapi.json").json()
        known = {"id": KNOWN, "path": PATHS, "execution_id": executions, "number": ["0", "1"], "n": ["0", "1", "2"]}
        fuzzer = Fuzzer(sender(target.url), target.key, known)
        began = time.monotonic()
        generate(document, TOTAL, fuzzer.one)
        sent = sum(fuzzer.statuses.values())
        with capsys.disabled():
            print(f"\nfuzz: {sent} requests, seed {SEED}, {time.monotonic() - began:.0f} s, {dict(fuzzer.statuses)}")
        assert not fuzzer.faults, "\n".join(fuzzer.faults[:20])
        assert sent > TOTAL * 0.6
        assert sum(n for status, n in fuzzer.statuses.items() if status < 300) > sent / 20, "it never got through"
        assert sum(n for status, n in fuzzer.statuses.items() if 400 <= status < 500) > sent / 20
        assert http.get("/healthz").json()["ok"]
        assert Chat(http, "after").ok("1")["outcome"] == "ok"
        levels = {json.loads(line).get("level") for line in target.log.read_text().splitlines() if line.startswith("{")}
        assert levels <= {"info", "warning", "debug"}, levels


@pytest.fixture
def faulty() -> Iterator[tuple[FastAPI, str]]:
    """An application that fails when it is given a nought, served on loopback."""
    app = FastAPI()

    @app.get("/v1/conversations/{id}")
    async def show(id: str, limit: int = 1) -> Response:
        return Response(status_code=200 if limit else 500)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield app, f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


def test_control_a_fault_is_found(faulty: tuple[FastAPI, str]) -> None:
    app, url = faulty
    fuzzer = Fuzzer(sender(url), "key", {})
    generate(app.openapi(), 200, fuzzer.one)
    assert any("status 500" in fault for fault in fuzzer.faults)
