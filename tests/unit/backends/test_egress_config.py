"""The two settings of egress: what is refused at start, and what sandboxes are told."""

from __future__ import annotations

import pytest

from runner.backends.base import BackendReport
from runner.backends.egress import Egress, EgressConfig, Looks, added_environment
from runner.errors import ConfigurationError


def config(network: str = "", proxy: str = "") -> EgressConfig:
    return EgressConfig.from_env({"SANDBOX_EGRESS_NETWORK": network, "SANDBOX_EGRESS_PROXY": proxy})


@pytest.mark.parametrize(
    "proxy",
    [
        "http://user:secret@proxy:3128", "http://user@proxy:3128", "http://@proxy:3128", "http://:secret@proxy:3128",
        "http://u%40s:secret@proxy", "https://proxy:3128", "proxy:3128", "//proxy:3128", "socks5://proxy:1080",
        "http://proxy:0", "http://proxy:65536", "http://proxy:x", "http://", "http://:3128", "http://proxy:3128/path",
        "http://proxy:3128?a=b", "http://proxy:3128#a", "http://proxy:3128?", "http://pro xy:3128",
        "http://proxy:3128 x", "http://proxy\t:3128", "http://a\\b:3128", "http://[::1:3128",
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_proxy_is_refused_and_not_repeated(proxy: str) -> None:
    with pytest.raises(ConfigurationError, match="SANDBOX_EGRESS_PROXY") as caught:
        config(proxy=proxy)
    assert "secret" not in caught.value.detail


@pytest.mark.parametrize("network", ["host", "none", "Host", "container:abc", "a b", "-x", "a/b", "default"])
def test_a_network_that_was_not_made_for_this_is_refused(network: str) -> None:
    with pytest.raises(ConfigurationError, match="SANDBOX_EGRESS_NETWORK"):
        config(network)


@pytest.mark.parametrize(
    ("proxy", "address"),
    [
        ("http://egress:3128", ("egress", 3128)), ("http://10.0.0.2:8080/", ("10.0.0.2", 8080)),
        ("http://proxy.example", ("proxy.example", 80)), ("http://[fd00::2]:3128", ("fd00::2", 3128)),
        ("  http://egress:3128  ", ("egress", 3128)),
    ],
)  # fmt: skip
def test_a_proxy_has_host_and_port(proxy: str, address: tuple[str, int]) -> None:
    made = config("on", proxy)
    assert (made.address, made.wanted) == (address, True)
    assert made.proxy == proxy.strip().rstrip("/")


def test_nothing_is_granted_unless_a_network_is_named() -> None:
    assert config("", "http://egress:3128").wanted is False
    assert config().unproven == Egress(False, "SANDBOX_EGRESS_NETWORK is not set")
    assert config("on").unproven.on is None


def test_both_cases_of_the_variables_and_none_without_a_proxy() -> None:
    told = added_environment("http://egress:3128", {"PATH": "/bin", "HOME": "/home/sandbox"})
    assert {told[name] for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")} == {"http://egress:3128"}
    assert {told[name] for name in ("NO_PROXY", "no_proxy")} == {"localhost,127.0.0.1,::1"}
    assert told["PATH"] == "/bin:/tmp/packages/bin"
    assert not [name for name in added_environment("", {"PATH": "/bin"}) if "proxy" in name.lower()]


ON, OFF, UNKNOWN = Egress(True, "on"), Egress(False, "silent"), Egress(None, "busy")


def test_one_look_that_failed_is_none_and_two_are_a_loss() -> None:
    looks = Looks()
    known = looks.first(ON)
    for seen in (OFF, ON, OFF, UNKNOWN):
        known = looks.next(known, seen)
        assert known == ON
    assert looks.next(known, OFF) == Egress(False, "silent", lost=True)


def test_what_was_never_on_is_not_lost_and_what_was_comes_back() -> None:
    looks = Looks()
    assert looks.first(OFF) == OFF
    assert looks.next(OFF, OFF) == OFF
    known = looks.next(OFF, ON)
    known = looks.next(looks.next(known, OFF), OFF)
    assert (known.on, known.lost) == (False, True)
    assert looks.next(known, OFF).lost
    assert looks.next(known, ON) == ON
    assert looks.first(OFF).lost  # a whole probe, once the engine is there again


def test_what_was_seen_is_unknown_once_no_sandbox_can_be_started() -> None:
    seen = Egress(True, "seen")
    assert BackendReport("lab", True, network=seen).egress is True
    assert BackendReport("lab", False, network=seen).egress is None
    assert "not known" in BackendReport("lab", False, network=seen).egress_detail
    assert BackendReport("lab", False).egress is False
