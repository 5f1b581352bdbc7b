"""One strict reading of addresses: what programs read in different ways is refused before anything is looked up."""

from __future__ import annotations

import pytest

from runner.egress.addresses import refusal
from runner.egress.targets import follow, parse
from runner.errors import UrlRefused
from tests.support.odd_urls import NOT_PUBLIC, REFUSED

TAKEN = {
    "http://example.com": ("http", "example.com", 80, "/"),
    "HTTPS://Example.COM./a?b=c#d": ("https", "example.com", 443, "/a?b=c"),
    "http://example.com:443?x": ("http", "example.com", 443, "/?x"),
    "http://example.com:": ("http", "example.com", 80, "/"),
    "https://münchen.example/bäcker/ä b".replace(" ", "%20"): (
        "https",
        "xn--mnchen-3ya.example",
        443,
        "/b%C3%A4cker/%C3%A4%20b",
    ),
    "http://a_b.example/%7Ex": ("http", "a_b.example", 80, "/%7Ex"),
    "http://93.184.216.34/x": ("http", "93.184.216.34", 80, "/x"),
    "http://[2606:2800:220:1::1]/": ("http", "2606:2800:220:1::1", 80, "/"),
    "http://[::ffff:93.184.216.34]/": ("http", "93.184.216.34", 80, "/"),
    "http://example.com/a?u=http://127.0.0.1/@x\x7f"[:-1]: ("http", "example.com", 80, "/a?u=http://127.0.0.1/@x"),
    "http://1.2.3.4.example/": ("http", "1.2.3.4.example", 80, "/"),
}


@pytest.mark.parametrize("url", REFUSED, ids=ascii)
def test_what_can_be_read_in_two_ways_is_refused(url: str) -> None:
    with pytest.raises(UrlRefused):
        parse(url)


@pytest.mark.parametrize("url", NOT_PUBLIC)
def test_addresses_in_digits_are_read_and_not_allowed(url: str) -> None:
    target = parse(url)
    assert target.address is not None and refusal(target.address) is not None


@pytest.mark.parametrize(("url", "parts"), TAKEN.items())
def test_addresses_that_are_taken(url: str, parts: tuple[str, str, int, str]) -> None:
    target = parse(url)
    assert (target.scheme, target.host, target.port, target.path) == parts
    assert parse(target.url) == target


def test_host_of_the_request() -> None:
    assert parse("http://example.com:443/").authority == "example.com:443"
    assert parse("https://example.com:443/").authority == "example.com"
    assert parse("http://[2606:2800:220:1::1]/").authority == "[2606:2800:220:1::1]"


@pytest.mark.parametrize("location", [
    "http://127.0.0.1:22/", "//2130706433/", "ftp://example.com/", "file:///etc/passwd", "http://user@example.com/",
    "\\\\127.0.0.1\\x", "http://exa mple.com/", "http://[::1", "javascript:1", "//localhost/", "http:\t//127.0.0.1/",
    "//0x7f.1", "https://example.com:8443/",
])  # fmt: skip
def test_a_redirect_is_read_as_strictly(location: str) -> None:
    with pytest.raises(UrlRefused):
        follow(parse("https://example.com/a/b"), location)


def test_redirects_are_relative_to_what_was_asked() -> None:
    base = parse("https://example.com/a/b?x")
    assert follow(base, "../c").url == "https://example.com/c"
    assert follow(base, "//other.example/d").url == "https://other.example/d"
    assert follow(base, "?y").url == "https://example.com/a/b?y"
