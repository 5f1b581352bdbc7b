"""The proxy of sandboxes refuses what the service itself refuses to fetch from: two lists, held against each other."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

import pytest

from runner.egress import addresses
from runner.egress.addresses import IPAddress, refusal

CONF = Path(__file__).resolve().parents[3] / "images/egress/squid.conf"
NETWORKS = [
    ip_network(word)
    for line in CONF.read_text().splitlines()
    if line.startswith("acl not_public dst ")
    for word in line.split()[3:]
]


def refused(address: IPAddress) -> bool:
    """Whether squid's list has an address."""
    return any(address in network for network in NETWORKS)


@pytest.mark.parametrize("network", [network for network, _ in (*addresses._V4, *addresses._V6_NAMED)], ids=str)
def test_every_range_of_the_guard_is_in_the_list_of_the_proxy(network: IPv4Network | IPv6Network) -> None:
    assert any(network.version == one.version and network.subnet_of(one) for one in NETWORKS)  # type: ignore[arg-type]


def test_no_entry_is_within_another() -> None:
    """Squid leaves such a one out of its tree."""
    for one in NETWORKS:
        assert not [other for other in NETWORKS if other is not one and one.overlaps(other)], one


def test_addresses_of_ipv4_are_judged_alike() -> None:
    for number in range(0, 1 << 32, (1 << 32) // 20_000):
        address = IPv4Address(number)
        assert refused(address) == (refusal(address) is not None), address


def test_of_ipv6_global_unicast_alone_is_left() -> None:
    """By the first two bytes; 0000::/16 holds IPv4 in its ways, which are named one by one."""
    for first in range(1, 1 << 16):
        if first >> 13 != 1:
            assert refused(ip_address(first << 112 | 1)), hex(first)


@pytest.mark.parametrize("address", ["2606:2800:220:1::1", "2a00:1450:4001::1", "::ffff:93.184.216.34", "2003::1"])
def test_what_is_public_is_not_refused(address: str) -> None:
    assert not refused(ip_address(address))
