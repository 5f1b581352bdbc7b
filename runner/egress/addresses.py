"""Which addresses the service may connect to: globally reachable unicast, and nothing with a special purpose. Pure.

IPv4 is allowed but for the special-purpose registry of IANA (RFC 6890, RFC 8190); IPv6 is refused but for the global
unicast block 2000::/3, and of that everything that has a special purpose or carries another address within.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

IPAddress = IPv4Address | IPv6Address

_V4: Final = tuple(
    (IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this network"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared between carrier and customer"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "a cloud's own service"),  # of Azure: a public number that only its guests can reach
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.31.196.0/24", "AS112"),
        ("192.52.193.0/24", "AMT"),
        ("192.88.99.0/24", "6to4 relays"),
        ("192.168.0.0/16", "private"),
        ("192.175.48.0/24", "AS112"),
        ("198.18.0.0/15", "benchmarks"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),  # with 255.255.255.255
    )
)
_V6_NAMED: Final = tuple(
    (IPv6Network(network), what)
    for network, what in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("::/96", "IPv4-compatible"),
        ("::ffff:0:0:0/96", "IPv4-translated"),
        ("64:ff9b:1::/48", "NAT64 of a local network"),
        ("100::/64", "discarded"),
        ("100:0:0:1::/64", "a dummy prefix"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "protocol assignments"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("2620:4f:8000::/48", "AS112"),
        ("3ffe::/16", "6bone"),
        ("3fff::/20", "documentation"),
        ("5f00::/16", "segment routing"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_GLOBAL: Final = IPv6Network("2000::/3")
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")  # RFC 5214, before an IPv4 address


def refusal(address: IPAddress) -> str | None:
    """Why the service must not connect to an address; None where it may."""
    if isinstance(address, IPv4Address):
        return next((what for network, what in _V4 if address in network), None)
    if address.scope_id is not None:
        return "scoped to an interface"
    inner = IPv4Address(address.packed[12:])
    if address in _MAPPED:
        return refusal(inner)
    if address in _NAT64:
        return refusal(inner)
    named = next((what for network, what in _V6_NAMED if address in network), None)
    if named is not None:
        return named
    if address not in _GLOBAL:
        return "not global unicast"
    return refusal(inner) if address.packed[8:12] in _ISATAP else None


def plain(address: IPAddress) -> IPAddress:
    """An address as it is connected to: IPv4 that is written as IPv6 is IPv4."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped
