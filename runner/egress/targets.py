"""Reads an address of the web into what is connected to, in one strict way: what two parsers could read differently is
refused, so nothing is checked under one meaning and fetched under another. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import quote, urljoin

import idna

from runner.egress.addresses import IPAddress, plain
from runner.errors import UrlRefused

MAX_URL: Final = 8192
PORTS: Final = {"http": 80, "https": 443}
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^#]*)(?:#.*)?")
_AUTHORITY: Final = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]{0,5}))?")
_UNFIT: Final = re.compile(r"[\x00-\x20\x7f\\]")
_NAME: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_QUAD: Final = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
_SAFE: Final = "/?:@!$&'()*+,;=-._~%[]|^`{}\""  # of path and query; what is encoded stays as it is
_LOCAL: Final = ("localhost", "local", "internal", "home.arpa", "onion")  # never names of the public web


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes. ``host`` is a name in ASCII, or an address without brackets, which ``address`` is too."""

    scheme: str
    host: str
    port: int
    path: str
    address: IPAddress | None = None

    @property
    def authority(self) -> str:
        """``Host`` of the request."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The whole address."""
        return f"{self.scheme}://{self.authority}{self.path}"


def parse(url: str) -> Target:
    """Where an address leads. Raises UrlRefused."""
    if len(url) > MAX_URL:
        raise UrlRefused(f"url: an address may have {MAX_URL} characters", limit=MAX_URL)
    if _UNFIT.search(url):
        raise UrlRefused("url: there is a space, a control character or a backslash in it: percent-encode it")
    match = _URL.fullmatch(url)
    if match is None:
        raise UrlRefused("url: write a whole address, such as https://example.com/picture.png")
    scheme, authority, rest = match[1].lower(), match[2], match[3]
    if scheme not in PORTS:
        raise UrlRefused(f"url: {scheme} is not fetched, only http and https")
    if "@" in authority:
        raise UrlRefused("url: an address with user information is not fetched: remove what stands before the @")
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None or not parts[1]:
        raise UrlRefused("url: the host is missing or malformed")
    host, address = _host(parts[1])
    port = int(parts[2]) if parts[2] else PORTS[scheme]
    if port not in PORTS.values():
        raise UrlRefused(f"url: port {port} is not fetched from, only 80 and 443")
    return Target(scheme, host, port, _path(rest), address)


def follow(base: Target, location: str) -> Target:
    """Where a redirect leads. Raises UrlRefused."""
    if _UNFIT.search(location) or len(location) > MAX_URL:
        raise UrlRefused("the server redirects to something that is no address")
    try:
        joined = urljoin(base.url, location)
    except ValueError:
        raise UrlRefused("the server redirects to something that is no address") from None
    return parse(joined)


def _path(rest: str) -> str:
    try:
        path = quote(rest, safe=_SAFE)
    except UnicodeEncodeError:
        raise UrlRefused("url: there are characters in it that no encoding can carry") from None
    return path if path.startswith("/") else f"/{path}"


def _host(written: str) -> tuple[str, IPAddress | None]:
    """Name or address; what is written in brackets is IPv6. Raises UrlRefused."""
    if written.startswith("["):
        try:
            inner = IPv6Address(written[1:-1])
        except ValueError:
            raise UrlRefused("url: what stands in brackets is not an IPv6 address") from None
        if inner.scope_id is not None:
            raise UrlRefused("url: an address with a zone is of one machine only, and not fetched")
        address = plain(inner)
        return str(address), address
    if "%" in written:
        raise UrlRefused("url: the host is percent-encoded: write it as it is")
    name = _ascii(written).removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _quad(name)
    if len(name) > 253 or not all(_NAME.fullmatch(label) for label in labels):
        raise UrlRefused("url: the host is not a name that the web knows")
    if len(labels) == 1 or any(name == local or name.endswith(f".{local}") for local in _LOCAL):
        raise UrlRefused("url: this is a name of a local network, and not fetched from")
    return name, None


def _quad(name: str) -> tuple[str, IPAddress]:
    """An IPv4 address in its one canonical form. Octal, hexadecimal, short and whole numbers are read differently by
    different programs.
    """
    if not _QUAD.fullmatch(name):
        raise UrlRefused("url: write an IPv4 address as four decimal numbers without leading zeros")
    try:
        address = IPv4Address(name)
    except ValueError:
        raise UrlRefused("url: the host is not an IPv4 address") from None
    return name, address


def _ascii(written: str) -> str:
    """The host in lower-case ASCII (UTS 46). Raises UrlRefused, also where another script spells an address."""
    if written.isascii():
        return written.lower()
    try:
        name = idna.encode(written, uts46=True, std3_rules=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise UrlRefused("url: the host is not a name that the web knows") from None
    if _NUMBER.fullmatch(name.removesuffix(".").rpartition(".")[2]):
        raise UrlRefused("url: write an IPv4 address as four decimal numbers without leading zeros")
    return name
