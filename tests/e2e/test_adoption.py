"""The service is killed while it works: what the next start finds of conversations, of runs and on the machine.

Where sandboxes outlive the service (``runner-dies``), runs go on and variables are there; elsewhere a run that was
going on is ``lost``. Everywhere each run has one outcome and was executed once at most. The store is read as files,
and Docker is asked through its own command line.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.backends.docker.labels import deployment_id
from tests.support.columns import Column
from tests.support.differences import differs
from tests.support.engines import docker
from tests.support.events import begin, read
from tests.support.runner import Chat, Runner, running
from tests.support.waiting import aside, gauge, until

TALKS, WAITING = 5, 3
SETTINGS = {"SANDBOX_POOL_SIZE": "1", "SANDBOX_MAX_SESSIONS": "12", "SANDBOX_KEEP_ON_STOP": "true"}
KEEPS = differs("runner-dies")
PATIENCE_S = 120.0
# Goes on for a while after the service was killed, and says in a variable and in a file how often it was executed.
LONG = """
import time
print('begun', flush=True)
n.append('long'); open('outputs/log.txt', 'a').write('long ')
for _ in range({ticks}): time.sleep(0.1)
print('over')
"""
SHORT = "n.append({name!r}); open('outputs/log.txt', 'a').write({name!r} + ' '); print({name!r})"


@dataclass
class Outside:
    """What lies on the machine, seen without the service."""

    data: Path
    column: Column

    def records(self) -> dict[str, list[str]]:
        """Executions in the store: which of their two records there are."""
        found: dict[str, list[str]] = {}
        for path in sorted(self.data.glob("store/objects/t/*/c/*/*/x/*.json")):
            name, _, rest = path.name.partition(".")
            found.setdefault(name, []).append(rest.removesuffix(".json"))
        return found

    def outcome(self, execution_id: str) -> str:
        """What the end record of a run says."""
        (path,) = self.data.glob(f"store/objects/t/*/c/*/*/x/{execution_id}.end.json")
        record = json.loads(zlib.decompress(path.read_bytes()))
        return str(record["result"]["outcome"])

    def containers(self) -> set[str]:
        """Names of this deployment's containers, ended ones too; none where there is no engine."""
        if not self.column.needs_engine:
            return set()
        label = f"label=foliobox.deployment={deployment_id(self.data)}"
        return set(docker.lines("ps", "--all", "--filter", label, "--format", "{{.Names}}"))

    def others(self) -> set[str]:
        """What a container could leave behind: networks, volumes, and commands that were begun in it."""
        found: set[str] = set()
        for container in map(docker.inspect, self.containers()):
            found |= set(container["NetworkSettings"]["Networks"]) - {"none"} | set(container["ExecIDs"] or ())
            found |= {mount["Name"] for mount in container["Mounts"] if mount["Type"] == "volume"}
        return found

    def notes(self) -> list[str]:
        """Sandboxes that the service has noted."""
        return [path.stem for path in (self.data / "sandboxes").glob("*.json")]


@dataclass
class Service:
    """A service that is killed and started again on the same data."""

    runner: Runner
    outside: Outside
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = self.runner.client()

    def chat(self, name: str) -> Chat:
        """A conversation, at the service as it is now."""
        return Chat(self.http, name)

    def again(self) -> None:
        """Kill, and start."""
        self.runner.kill()
        self.start()

    def start(self) -> None:
        """Start, after an end."""
        self.http.close()
        self.runner.start()
        self.http = self.runner.client()

    def ended(self, name: str, execution_id: str) -> dict[str, Any]:
        """The result of a run, waited for."""
        url = f"/v1/conversations/{name}/executions/{execution_id}"
        until(lambda: self.http.get(url).json()["status"] == "ended", f"{execution_id} ends", PATIENCE_S)
        result: dict[str, Any] = self.http.get(url).json()["result"]
        return result


@pytest.fixture
def service(tmp_path: Path, column: Column) -> Iterator[Service]:
    """A service of the test's own; nothing of it is left on the machine."""
    with running(tmp_path, **SETTINGS) as runner:
        made = Service(runner, Outside(tmp_path, column))
        yield made
        assert made.outside.others() == set()
        for conversation in made.http.get("/v1/conversations?limit=100").json()["conversations"]:
            made.chat(conversation["id"]).purge()
        assert made.outside.notes() == []
        until(lambda: len(made.outside.containers()) <= 1, "only the spare is left")
        made.http.close()
    assert made.outside.containers() == set()


def post(service: Service, name: str, code: str, key: str) -> httpx.Response:
    """Execute under a key."""
    body, headers = {"code": code}, {"Idempotency-Key": key}
    with service.runner.client() as http:
        return http.post(f"/v1/conversations/{name}/execute", json=body, headers=headers, timeout=PATIENCE_S)


def test_a_kill_during_twenty_runs(service: Service) -> None:
    """Five go on while fifteen more wait for them."""
    names = [f"talk-{number}" for number in range(TALKS)]
    for name in names:
        service.chat(name).ok(f"n = [{name!r}]")
    before = service.outside.containers()
    long = {name: begin(service.chat(name), LONG.format(ticks=60 + 10 * i), "stdout") for i, name in enumerate(names)}
    shorts = [(name, SHORT.format(name=f"s{i}"), f"s{i}") for name in names for i in range(WAITING)]
    waiting = [aside(lambda short=short: post(service, *short)) for short in shorts]  # type: ignore[misc]
    until(lambda: gauge(service.http, "foliobox_queue_length") == TALKS * WAITING, "the others wait")
    service.again()
    for future in waiting:
        assert isinstance(future.exception(PATIENCE_S), httpx.TransportError)
    if KEEPS:
        live = {name for name in names if service.http.get(f"/v1/conversations/{name}").json()["live"]}
        assert live == set(names)
        assert len(service.outside.containers() & before) >= TALKS
    results = {name: service.ended(name, execution_id) for name, execution_id in long.items()}
    assert {result["outcome"] for result in results.values()} == {"ok" if KEEPS else "lost"}
    answers = [post(service, *short) for short in shorts]
    assert {answer.status_code for answer in answers} == {200}
    for number, name in enumerate(names):
        own = [answer.json() for answer in answers[number * WAITING :][:WAITING]]
        check_one(service, name, long[name], results[name], own)
    for execution_id, parts in service.outside.records().items():
        assert parts.count("end") == 1, (execution_id, parts)


def check_one(service: Service, name: str, run: str, long: dict[str, Any], shorts: list[dict[str, Any]]) -> None:
    """A conversation after the kill: variables, files, versions and records say the same."""
    assert service.outside.outcome(run) == long["outcome"]
    assert [service.outside.outcome(short["execution_id"]) for short in shorts] == [s["outcome"] for s in shorts]
    if not KEEPS:
        assert (shorts[0]["outcome"], shorts[0]["interpreter_reason"]) == ("error", "restored")
        return
    assert (long["stdout"], long["version"]) == ("begun\nover\n", 1)
    assert [entry["path"] for entry in long["files"]] == ["outputs/log.txt"]
    assert [(short["stdout"], short["interpreter"]) for short in shorts] == [
        (f"s{i}\n", "kept") for i in range(WAITING)
    ]
    assert service.chat(name).get("outputs/log.txt").text == "long s0 s1 s2 "
    assert service.chat(name).ok("print(n)")["stdout"] == f"['{name}', 'long', 's0', 's1', 's2']\n"


def test_kills_at_any_moment(service: Service) -> None:
    """Clients send short runs one after the other, and each again until it has an answer."""
    names, rounds = [f"busy-{number}" for number in range(3)], 10
    for name in names:
        service.chat(name).ok("n = []")
    kills = threading.Event()
    clients = [aside(lambda name=name: drive(service, name, rounds, kills)) for name in names]  # type: ignore[misc]
    for part in (1, 2):
        done = part * rounds
        until(lambda done=done: len(service.outside.records()) >= done, f"{done} runs", PATIENCE_S)  # type: ignore[misc]
        service.again()
    kills.set()
    for name, client in zip(names, clients, strict=True):
        results = client.result(PATIENCE_S)
        good = [f"r{number}" for number, result in enumerate(results) if result["outcome"] == "ok"]
        lost = {result["outcome"] for result in results} - {"ok"}
        if KEEPS:
            assert lost <= {"lost"}
            assert service.chat(name).ok("print(n)")["stdout"] == f"{good}\n"
            assert service.chat(name).get("outputs/log.txt").text.split() == good
        executed = service.chat(name).get("outputs/log.txt").text.split()
        assert len(executed) == len(set(executed))
        for result in results:
            assert service.outside.outcome(result["execution_id"]) == result["outcome"]
    # What was cut off before its key was claimed is settled at the start; elsewhere when somebody asks for it.
    assert not KEEPS or {parts[-1] for parts in service.outside.records().values()} == {"end"}


def drive(service: Service, name: str, rounds: int, last: threading.Event) -> list[dict[str, Any]]:
    """Results of runs that are sent again after every broken connection, and go on until the last kill is over."""
    results: list[dict[str, Any]] = []
    while len(results) < rounds or not last.is_set():
        number = len(results)
        code = f"n = globals().get('n', [])\n{SHORT.format(name=f'r{number}')}"
        try:
            answer = post(service, name, code, f"k{number}")
        except httpx.TransportError:
            time.sleep(0.05)
            continue
        assert answer.status_code == 200, answer.text
        results.append(answer.json())
    return results


def test_a_stop_and_a_start_keep_what_is_idle(service: Service) -> None:
    service.chat("c").ok("n = 1")
    before = service.outside.containers()
    service.runner.stop()
    assert service.outside.notes() == [name.removeprefix("foliobox-") for name in service.outside.containers()]
    service.start()
    result = service.chat("c").run("print(n)")
    assert result["outcome"] == ("ok" if KEEPS else "error")
    assert (service.outside.containers() & before != set()) == KEEPS


def test_events_are_followed_on_over_a_kill(service: Service) -> None:
    run = begin(service.chat("c"), "n = []\n" + LONG.format(ticks=30), "stdout")
    service.again()
    url = f"/v1/conversations/c/executions/{run}/events"
    with service.http.stream("GET", url, params={"after": "2"}, timeout=PATIENCE_S) as answer:
        told = [(name, body.get("text")) for name, body in read(answer)] if answer.status_code == 200 else []
    # A lost run has one event, the end; who has seen two has seen more than there is now.
    assert told == ([("stdout", "over\n"), ("file", None), ("done", None)] if KEEPS else [])
