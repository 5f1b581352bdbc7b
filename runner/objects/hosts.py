"""Which hosts a request may name as its storage: a list of the operator's, and a check of where a name leads.

An entry is a host, or ``*.`` with a suffix; with ``:port`` it is for that port, without for the default ones (443 and
80). A host that is listed itself is trusted wherever its name leads. One that only a suffix covers must lead to public
addresses alone.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from runner.errors import ConfigurationError

SETTING: Final = "SANDBOX_STORAGE_HOSTS"
_NAME: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*")
_ENTRY: Final = re.compile(r"(\*\.)?(\[[0-9a-f:.]+\]|[^\[\]:*]+)(?::([0-9]{1,5}))?")
_DEFAULT_PORTS: Final = (443, 80)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class _Entry:
    """``port`` None: one of the default ports."""

    host: str
    wild: bool
    port: int | None

    def fits(self, host: str, port: int) -> bool:
        named = host.endswith("." + self.host) if self.wild else host == self.host
        return named and (port == self.port if self.port is not None else port in _DEFAULT_PORTS)


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The list. Empty: no request may name any."""

    entries: tuple[_Entry, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AllowedHosts:
        """The list in a setting, separated by commas or space. Raises ConfigurationError."""
        return cls(tuple(_entry(word) for word in re.split(r"[,\s]+", text) if word))

    def listed(self, host: str, port: int) -> bool:
        """Whether an entry names or covers this host."""
        return any(entry.fits(host, port) for entry in self.entries)

    def named(self, host: str, port: int) -> bool:
        """Whether an entry names exactly this host: then it may lead anywhere."""
        return any(entry.fits(host, port) for entry in self.entries if not entry.wild)


def is_host(text: str) -> bool:
    """Whether this can be a host, in lower case: a name of ASCII labels, an IPv4 address, an IPv6 one in brackets."""
    if text.startswith("["):
        try:
            return text.endswith("]") and ipaddress.IPv6Address(text[1:-1]).scope_id is None
        except ValueError:
            return False
    return len(text) <= 253 and _NAME.fullmatch(text) is not None


def is_public(address: Address) -> bool:
    """Whether an address belongs to the public internet, also where it wraps an IPv4 one."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(inner)
        if address.teredo is not None or address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _entry(word: str) -> _Entry:
    match = _ENTRY.fullmatch(word.lower().rstrip("."))
    host = match[2] if match else ""
    port = int(match[3]) if match and match[3] else None
    if match is None or not is_host(host) or (match[1] and host.startswith("[")) or port == 0 or (port or 1) > 65535:
        raise ConfigurationError(
            f"{SETTING}: {word!r} cannot be used; write a host such as s3.example.com, with :port where it is not 443 "
            "or 80, or a suffix such as *.example.com.",
            setting=SETTING,
        )
    return _Entry(host, match[1] is not None, port)
