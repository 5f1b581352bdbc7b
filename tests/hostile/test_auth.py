"""Cases 47, 48 and 54: every route of the OpenAPI document with every kind of key that must not do.

The verdict is the status and, from outside, the store on the disk and the victim's interpreter: nothing may have
changed. The controls send the same to a service whose gate lets everybody in, and are seen to read and change.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.api import key_file, scopes
from runner.api.keys import Key, hashed, new_secret
from tests.hostile.support.routes import OPEN, VICTIM, Target, listing, routes
from tests.support.runner import Chat, Runner, running

SUPPORT = Path(__file__).resolve().parent / "support"
REPOSITORY = Path(__file__).resolve().parents[2]
MARK = "the victim's own words"
STRANGER = "stranger"
CONVERSATION = "/v1/conversations/{id}"
EVERYTHING = frozenset(scopes.SCOPES)
OF_ONE_SHOT = frozenset(("POST /run", "DELETE /container/{id}"))  # they say in words what is missing
NEED_STORAGE = frozenset(("POST /storage/put", "POST /storage/delete"))  # and this service has none
Headers = list[tuple[str, str]]


def bearer(secret: str) -> Headers:
    return [("Authorization", f"Bearer {secret}")]


@dataclass
class Site:
    """A service with keys of all kinds, and a conversation of the victim with one thing of each kind."""

    runner: Runner
    secrets: dict[str, str]
    http: httpx.Client

    def __post_init__(self) -> None:
        self.document: dict[str, Any] = self.http.get("/openapi.json").json()
        self.routes = routes(self.document)
        self.guarded = [route for route in self.routes if route.template not in OPEN]
        self.target = self.make(VICTIM)

    def key(self, name: str) -> Headers:
        """Headers with a key of this name."""
        return bearer(self.secrets[name])

    def client(self, name: str) -> httpx.Client:
        """A client with that key."""
        return httpx.Client(base_url=self.runner.url, headers=dict(self.key(name)), timeout=60)

    def make(self, name: str) -> Target:
        """A conversation with a file, a version, a shown picture and an output too long for its result."""
        with self.client(name) as http:
            chat = Chat(http)
            shown = "class P:\n def _repr_mimebundle_(s, **k): return {'image/png': b'\\x89PNG' * 99}\ndisplay(P())\n"
            done = chat.ok(f"{shown}kept = {MARK!r}\nopen('outputs/a.txt', 'w').write(kept)\nprint(kept * 9000)")
            assert done["stdout_truncated"]
            session = http.post("/sessions", json={"archive_key": chat.id}).json()["session_id"]
            return Target(chat.id, done["execution_id"], version=done["version"], session_id=session)

    @property
    def store(self) -> Path:
        return self.runner.data / "store"

    @contextmanager
    def nothing_changes(self, part: str = "") -> Iterator[None]:
        """The store, or the part below a folder of it, and the victim's interpreter are afterwards as before."""
        before = {name: state for name, state in listing(self.store).items() if part in name}
        yield
        after = {name: state for name, state in listing(self.store).items() if part in name}
        assert after == before
        assert before

    def victim_is_well(self) -> None:
        """Its variables are there: no run of its was interrupted and its interpreter not taken away."""
        with self.client(VICTIM) as http:
            chat = Chat(http, self.target.id)
            done = chat.ok("print(kept)", fresh=False)
            assert (done["stdout"], done["interpreter"]) == (MARK + "\n", "kept")
            assert chat.get("outputs/a.txt").text == MARK


@contextmanager
def serving(folder: Path, **env: str) -> Iterator[Site]:
    """A service with a file of keys."""
    made = {name: new_secret() for name in (VICTIM, STRANGER, "expired", *(f"no {scope}" for scope in scopes.SCOPES))}
    hashes = {name: hashed(secret.encode()) for name, secret in made.items()}
    path = folder / "keys.json"
    entries = [
        Key(VICTIM, VICTIM, hashes[VICTIM], EVERYTHING),
        Key(STRANGER, STRANGER, hashes[STRANGER], EVERYTHING),
        Key("expired", VICTIM, hashes["expired"], EVERYTHING, expires_at=datetime(2020, 1, 1, tzinfo=UTC)),
        *(Key(f"no-{s}", VICTIM, hashes[f"no {s}"], EVERYTHING - {s}) for s in scopes.SCOPES),
    ]
    path.write_bytes(key_file.render(entries))
    path.chmod(0o600)
    settings = {"SANDBOX_API_KEYS_FILE": str(path), "SANDBOX_POOL_SIZE": "1", **env}
    with (
        running(folder / "data", **settings) as runner,
        httpx.Client(base_url=runner.url, timeout=60) as http,
    ):
        yield Site(runner, {**made, "operator": runner.key}, http)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The real service."""
    with serving(tmp_path_factory.mktemp("auth")) as found:
        yield found


@pytest.fixture(scope="module")
def open_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The same without a gate."""
    path = os.pathsep.join((str(SUPPORT / "open_site"), str(REPOSITORY)))
    with serving(tmp_path_factory.mktemp("open"), PYTHONPATH=path) as found:
        yield found


def useless(site: Site) -> dict[str, Headers]:
    """Headers that speak for nobody."""
    victim = site.secrets[VICTIM]
    return {
        "none": [],
        "empty": [("Authorization", "")],
        "no scheme": [("Authorization", victim)],
        "another scheme": [("Authorization", f"Basic {victim}")],
        "mistyped": bearer(victim[:-1] + ("a" if victim[-1] != "a" else "b")),
        "unknown": bearer(new_secret()),
        "a hash": bearer(hashed(victim.encode())),
        "twice": [*bearer(victim), *bearer(victim)],
        "expired": site.key("expired"),
        "in other headers": [("X-Api-Key", victim), ("Proxy-Authorization", f"Bearer {victim}")],
    }


def test_every_route_has_a_scope_or_is_open(site: Site) -> None:
    assert {route.name for route in site.guarded} == set(scopes.TABLE)
    for route in site.routes:
        secured = bool(site.document["paths"][route.template][route.method.lower()].get("security"))
        assert secured == (route.template not in OPEN), route.name


def test_nobody_does_anything_without_a_key(site: Site) -> None:
    with site.nothing_changes():
        for kind, headers in useless(site).items():
            for route in site.guarded:
                answer = route.send(site.http, site.target, headers)
                assert answer.status_code == 401, (kind, route.name, answer.text)
                assert answer.headers["www-authenticate"] == "Bearer"
                assert MARK not in answer.text
                told = answer.json().get("error" if route.foreign else "code") if answer.content else "unauthorized"
                assert "unauthorized" in told or route.name in OF_ONE_SHOT, (route.name, told)
    site.victim_is_well()


def test_control_behind_an_open_gate_the_same_requests_read_and_change(open_site: Site) -> None:
    headers = useless(open_site)["none"]
    before = listing(open_site.store)
    read = set()
    for route in open_site.guarded:
        answer = route.send(open_site.http, open_site.target, headers)
        assert answer.status_code not in (401, 403), route.name
        if MARK in answer.text:
            read.add(route.name)
    assert "GET /v1/conversations/{id}/files/{path}" in read
    assert "GET /v1/conversations/{id}/executions/{execution_id}/{stream}" in read
    assert listing(open_site.store) != before
    assert open_site.http.get(f"/v1/conversations/{open_site.target.id}").status_code == 404  # deleted by a route


def test_a_key_does_only_what_its_scopes_allow(site: Site) -> None:
    asked = set()
    with site.nothing_changes():
        for scope in scopes.SCOPES:
            for route in site.guarded:
                if scopes.TABLE[route.name] == scope:
                    answer = route.send(site.http, site.target, site.key(f"no {scope}"))
                    assert answer.status_code == 403, (route.name, answer.text)
                    assert route.method == "HEAD" or route.foreign or answer.json()["scope"] == scope
                    asked.add(route.name)
    assert asked == set(scopes.TABLE)
    site.victim_is_well()


def test_head_asks_for_what_get_asks_for(site: Site) -> None:
    """HEAD is answered for every GET, by the same rules, and tells nothing but headers."""
    readable = [replace(route, method="HEAD", body=None) for route in site.guarded if route.method == "GET"]
    assert len(readable) > 10
    with site.nothing_changes():
        for route in readable:
            needed = scopes.TABLE[f"GET {route.template}"]
            for kind, headers in useless(site).items():
                assert route.send(site.http, site.target, headers).status_code == 401, (kind, route.name)
            for scope in scopes.SCOPES:
                answer = route.send(site.http, site.target, site.key(f"no {scope}"))
                assert (answer.status_code == 403) == (scope == needed), (route.name, scope)
                assert (answer.status_code < 400) == (scope != needed), (route.name, scope)
                assert answer.content == b"", route.name
            if "{id}" in route.template:
                asked = (site.target, site.target.elsewhere())
                seen = [route.send(site.http, target, site.key(STRANGER)) for target in asked]
                assert [answer.status_code for answer in seen] == [404, 404], route.name
    site.victim_is_well()


def stripped(answer: httpx.Response, id: str) -> tuple[int, Any]:
    """Status and body of a refusal, without what differs from request to request."""
    if answer.status_code < 400 or not answer.content:
        return answer.status_code, None
    body = json.loads(answer.text.replace(id, "<id>"))
    body.pop("request_id", None)
    return answer.status_code, body


def test_anothers_conversation_is_like_a_missing_one(site: Site) -> None:
    """Whatever the stranger asks, the answer is the one for an id that nobody has."""
    found_missing = set()
    with site.nothing_changes(f"t/{VICTIM}/"), site.client(STRANGER) as http:
        for route in site.guarded:
            if "{id}" not in route.template and not route.foreign:
                continue
            seen = []
            for target in (site.target, site.target.elsewhere()):
                answer = route.send(http, target, [])
                assert MARK not in answer.text, route.name
                seen.append(stripped(answer, target.id))
                assert http.delete(f"/v1/conversations/{target.id}").status_code == 204  # what the request made
            assert seen[0] == seen[1], route.name
            if seen[0][0] == 404:
                found_missing.add(route.name)
        assert MARK not in http.get("/v1/conversations").text
        assert site.target.id not in http.get("/v1/conversations").text
    makes = {f"PUT {CONVERSATION}", f"POST {CONVERSATION}/execute", f"DELETE {CONVERSATION}"}
    makes |= {f"PUT {CONVERSATION}/files/{{path}}", f"POST {CONVERSATION}/files", "DELETE /container/{id}"}
    makes |= {f"POST {CONVERSATION}/tools/{{tool}}"}
    assert found_missing >= {r.name for r in site.guarded if "{id}" in r.template} - makes
    assert found_missing >= {"POST /exec", "POST /files", "POST /files/get", "POST /files/list"}
    site.victim_is_well()


def test_ids_of_things_give_nothing_outside_their_conversation(site: Site) -> None:
    """Execution, result, version, file and content of the victim, asked for in conversations of one's own: by
    another tenant, and by the same tenant.
    """
    for name in (STRANGER, VICTIM):
        with site.client(name) as http:
            own = site.make(name)
            chat = Chat(http, own.id)
            assert chat.put("outputs/b.txt", b"mine").status_code == 201
            assert chat.http.delete(f"/v1/conversations/{own.id}/files/outputs/a.txt").status_code == 204
            base = f"/v1/conversations/{own.id}"
            run = f"{base}/executions/{site.target.execution_id}"
            none = f"{base}/executions/{secrets.token_hex(16)}"
            for rest in ("", "/events", "/stdout", "/results/0"):
                answers = [http.get(place + rest) for place in (run, none)]
                assert [answer.status_code for answer in answers] == [404, 404], rest
                bodies = [re.sub(r"[0-9a-f]{16,32}", "<id>", answer.text) for answer in answers]
                assert bodies[0] == bodies[1], rest
            assert http.get(f"{run.replace(own.id, own.id)}/results/99").status_code == 404
            with site.client(VICTIM) as victim:
                victim.put(f"/v1/conversations/{site.target.id}/files/outputs/only.txt", content=MARK.encode() * 2)
                listed = victim.get(f"/v1/conversations/{site.target.id}/files").json()["files"]
            sha256 = next(item["sha256"] for item in listed if item["path"] == "outputs/only.txt")
            known = http.put(f"{base}/files/outputs/copy.txt", params={"sha256": sha256})
            assert (known.status_code, known.json()["code"]) == (404, "unknown_blob")
            assert http.get(f"{base}/files/outputs/only.txt").status_code == 404
            chat.purge()
    assert re.fullmatch(r"[0-9a-f]{32}", site.target.execution_id)  # 128 random bits
    site.victim_is_well()


def test_the_right_key_does_everything(site: Site) -> None:
    """Each route answers the right key, so that no refusal above is one of the request's own."""
    target = site.make(VICTIM)
    with site.client(VICTIM) as http:
        for route in site.guarded:
            used = site.make(VICTIM) if route.method == "DELETE" else target
            answer = route.send(http, used, [])
            assert (answer.status_code < 400) == (route.name not in NEED_STORAGE), (route.name, answer.text)
    site.victim_is_well()


def test_the_operators_key_is_a_tenant_of_its_own(site: Site) -> None:
    with site.client("operator") as http:
        assert http.get(f"/v1/conversations/{site.target.id}").status_code == 404
        assert http.get("/metrics").status_code == 200


def test_headers_of_every_kind_end_in_401(site: Site) -> None:
    """Bytes that no client library sends, over a socket of one's own."""
    victim = site.secrets[VICTIM].encode()
    lines = {
        "raw bytes": b"Authorization: Bearer \xff\xfe\x80",
        "nothing": b"Authorization:",
        "tab": b"Authorization:\tBearer\t" + victim,
        "long": b"Authorization: Bearer " + b"k" * 30_000,
        "many": b"\r\n".join([b"Authorization: Bearer " + victim] * 50),
        "mixed": b"Authorization: Bearer wrong\r\nauthorization: Bearer " + victim,
        "comma": b"Authorization: Bearer " + victim + b", Bearer x",
        "spaces": b"Authorization: Bearer" + b" " * 20_000,
    }
    with site.nothing_changes():
        for kind, line in lines.items():
            request = b"PUT /v1/conversations/x/files/y HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n%s\r\n\r\n" % line
            assert first_line(site.runner.port, request) == b"HTTP/1.1 401 Unauthorized", kind
        plain = b"GET /v1/conversations HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n" % victim
        assert first_line(site.runner.port, plain) == b"HTTP/1.1 200 OK"  # control: the same way with a good header


@pytest.mark.parametrize(("key", "status"), [("", b"401 Unauthorized"), ("no run", b"403 Forbidden")])
def test_a_refusal_comes_before_the_body(site: Site, key: str, status: bytes) -> None:
    """The answer comes though not one byte of the announced body was sent."""
    who = site.key(key) if key else [("X-Nothing", "")]
    for path in ("execute", "interrupt"):
        head = f"POST /v1/conversations/{site.target.id}/{path} HTTP/1.1\r\nHost: x\r\n{who[0][0]}: {who[0][1]}\r\n"
        head += "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        assert first_line(site.runner.port, head.encode()) == b"HTTP/1.1 " + status


def first_line(port: int, request: bytes) -> bytes:
    """The status line that a request sent as it is gets."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(request)
        with sock.makefile("rb") as answer:
            return answer.readline().rstrip(b"\r\n")


@pytest.mark.parametrize(
    "path",
    [
        "/metrics/",
        "//metrics",
        "/METRICS",
        "/healthz/../metrics",
        "/healthz%2f..%2fmetrics",
        "/healthz/%2e%2e/metrics",
        "/healthz;/metrics",
        "/docs/../metrics",
        "/v1/links/../../metrics",
        "/v1/links/..%2f..%2fmetrics",
        "/v1/links/../conversations",
        "/v1/links//v1/conversations",
        "/static-offline-docs/../v1/conversations",
        "/static-offline-docs/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "http://x/metrics",
        "/v1%2fconversations",
    ],
)
def test_no_spelling_of_an_address_goes_round_the_gate(site: Site, path: str) -> None:
    """What looks open to the gate must not be another route to the router."""
    assert first_line(site.runner.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).split()[1] in (
        b"400",
        b"401",
        b"404",
    )


def test_no_secret_is_in_the_log_or_the_store(site: Site) -> None:
    log = site.runner.log.read_text()
    assert '"key": "stranger"' in log  # control: names of keys are there
    kept = b"".join(path.read_bytes() for path in site.store.rglob("*") if path.is_file())
    for secret in site.secrets.values():
        assert secret not in log
        assert hashed(secret.encode()) not in log
        assert secret.encode() not in kept


def test_no_socket_but_http_is_served(site: Site) -> None:
    """The gate looks at HTTP requests; there is nothing else that it would have to look at."""
    upgrade = b"GET /v1/conversations HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    upgrade += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    assert first_line(site.runner.port, upgrade) in (b"HTTP/1.1 401 Unauthorized", b"HTTP/1.1 403 Forbidden")
