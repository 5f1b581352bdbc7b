"""Every special-purpose range is refused to its edges, in every way of writing one address within another."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from runner.egress.addresses import plain, refusal

# The registries of IANA, typed here a second time.
V4 = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24
203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 255.255.255.255/32 168.63.129.16/32
""".split()
V6 = """
::/128 ::1/128 ::/96 ::ffff:0:0:0/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/32 2001:1::1/128 2001:2::/48
2001:3::/32 2001:4:112::/48 2001:10::/28 2001:20::/28 2001:30::/28 2001:db8::/32 2002::/16 2620:4f:8000::/48
3ffe::/16 3fff::/20 5f00::/16 fc00::/7 fd00:ec2::254/128 fe80::/10 fec0::/10 ff00::/8 4000::/3 8000::/1 200::/7
""".split()
INNER = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "192.168.1.1", "172.31.255.255", "100.100.100.200", "0.0.0.0")
WRAPPED = (
    "::ffff:{}",
    "64:ff9b::{}",
    "64:ff9b:1::{}",
    "::{}",
    "::ffff:0:{}",
    "2606:2800::5efe:{}",
    "2606:2800::200:5efe:{}",
)
PUBLIC = (
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
    "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
    "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
    "2606:2800:220:1::1", "2001:200::1", "2001:db7::1", "2a00:1450:4001::1", "::ffff:93.184.216.34",
    "64:ff9b::93.184.216.34", "2003::1", "2001:4860:4860::8888",
)  # fmt: skip


@pytest.mark.parametrize("network", [*V4, *V6])
def test_a_range_is_refused_from_its_first_address_to_its_last(network: str) -> None:
    found = ip_network(network)
    for address in (found[0], found[-1], found[found.num_addresses // 2]):
        assert refusal(address) is not None, address


@pytest.mark.parametrize("form", WRAPPED)
@pytest.mark.parametrize("inner", INNER)
def test_an_address_within_another_is_judged(form: str, inner: str) -> None:
    assert refusal(ip_address(form.format(inner))) is not None


@pytest.mark.parametrize("inner", INNER)
def test_6to4_and_teredo_lead_nowhere(inner: str) -> None:
    packed = ip_address(inner).packed
    assert refusal(ip_address(b"\x20\x02" + packed + bytes(10))) is not None
    hidden = bytes(0xFF ^ byte for byte in packed)
    assert refusal(ip_address(b"\x20\x01\0\0" + bytes(8) + hidden)) is not None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert refusal(ip_address(address)) is None


def test_a_zone_is_of_one_machine() -> None:
    assert refusal(ip_address("2606:2800:220:1::1%eth0")) is not None


def test_ipv4_in_another_dress_is_connected_to_as_ipv4() -> None:
    assert str(plain(ip_address("::ffff:93.184.216.34"))) == "93.184.216.34"
    assert plain(ip_address("2606:2800::1")) == ip_address("2606:2800::1")


def test_nothing_that_python_calls_private_is_allowed() -> None:
    """A second opinion on 20,000 addresses: what is allowed here is global there."""
    for number in range(0, 1 << 32, (1 << 32) // 20_000):
        address = ip_address(number)
        assert refusal(address) is not None or (address.is_global and not address.is_multicast), address
