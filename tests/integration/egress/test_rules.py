"""Rules of the proxy for addresses that look public: squid's own word, and that it tries without the rule."""

from __future__ import annotations

import http.client
import socket
from urllib.parse import urlsplit

import pytest

from tests.support.egress.world import World
from tests.support.waiting import until

RULES = [
    ("own", "own.test"), ("own", "own6.test"), ("not_public", "cloud.test"),
    ("not_public", "as112.test"),
]  # fmt: skip


def asked(world: World, host: str) -> int:
    """Status of a plain request for a host."""
    where = urlsplit(world.proxy)
    line = http.client.HTTPConnection(str(where.hostname), where.port or 80, timeout=30)
    try:
        line.request("GET", f"http://{host}/", headers={"Host": host})
        return line.getresponse().status
    finally:
        line.close()


@pytest.mark.parametrize(("rule", "host"), RULES)
def test_an_address_that_looks_public_is_refused_by_its_rule(outside: World, rule: str, host: str) -> None:
    assert asked(outside, "allowed.test") == 200
    assert asked(outside, host) == 403


def test_without_these_rules_each_is_tried(outside: World) -> None:
    try:
        outside.start_proxy("own", "not_public")
        assert {asked(outside, host) for host in ("own.test", "own6.test")} == {503}
    finally:
        outside.start_proxy()


def test_what_only_looks_whether_somebody_listens_leaves_no_line(outside: World) -> None:
    where = urlsplit(outside.proxy)
    for said in (b"", b"nonsense\r\n\r\n"):
        with socket.create_connection((str(where.hostname), where.port or 80), 10) as line:
            line.sendall(said)
            line.shutdown(socket.SHUT_WR)
            while line.recv(1 << 16):
                pass
    assert asked(outside, "marked.denied.test") == 403

    def decisions() -> list[str]:
        return outside.decisions.read_text().splitlines()

    until(lambda: "marked.denied.test" in str(decisions()[-1:]), "the last one is written")
    assert [line.split()[2] for line in decisions()[-2:]] == ["NONE_NONE/400", "TCP_DENIED/403"]
    assert not [line for line in decisions() if "transaction-end" in line]
