"""The list of hosts: what it accepts, what it covers, and what counts as a public address."""

from __future__ import annotations

import ipaddress

import pytest

from runner.errors import ConfigurationError, StorageHostRefused, StorageRejected
from runner.objects.block import StorageBlock
from runner.objects.endpoint import endpoint_of
from runner.objects.hosts import AllowedHosts, is_public

LIST = AllowedHosts.parse("s3.example.com, *.example.net minio:9000 *.inner.test:8443 [2001:db8::1]:9000 10.0.0.7")


@pytest.mark.parametrize(
    ("host", "port", "listed", "named"),
    [
        ("s3.example.com", 443, True, True),
        ("s3.example.com", 80, True, True),
        ("s3.example.com", 9000, False, False),
        ("evil.s3.example.com", 443, False, False),
        ("s3.example.com.evil.org", 443, False, False),
        ("a.example.net", 443, True, False),
        ("a.b.example.net", 443, True, False),
        ("example.net", 443, False, False),
        ("evilexample.net", 443, False, False),
        ("minio", 9000, True, True),
        ("minio", 443, False, False),
        ("x.inner.test", 8443, True, False),
        ("x.inner.test", 443, False, False),
        ("[2001:db8::1]", 9000, True, True),
        ("10.0.0.7", 443, True, True),
        ("10.0.0.70", 443, False, False),
    ],
)
def test_what_the_list_covers(host: str, port: int, listed: bool, named: bool) -> None:
    """Exact names, suffixes with a dot before them, ports."""
    assert (LIST.listed(host, port), LIST.named(host, port)) == (listed, named)


@pytest.mark.parametrize(
    "text", ["*", "*.", "a*.com", "https://a.com", "a.com/x", "a.com:0", "a.com:99999", "a b@c", "*.[::1]"]
)
def test_what_the_list_refuses(text: str) -> None:
    """The setting is named and an example given."""
    with pytest.raises(ConfigurationError, match=r"SANDBOX_STORAGE_HOSTS"):
        AllowedHosts.parse(text)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("240.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00:ec2::254", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:8.8.8.8", True),
        ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False),
        ("64:ff9b::808:808", True),
        ("2001::1", False),
    ],
)
def test_what_is_public(address: str, public: bool) -> None:
    """Also where one address wraps another."""
    assert is_public(ipaddress.ip_address(address)) is public


ANYWHERE = AllowedHosts.parse("*.com *.com:9000 minio:9000 [::1]:9000")
KEYS = {"s3_access_key": "a", "s3_secret_key": "s", "oss_access_key_id": "a", "oss_access_key_secret": "s"}


@pytest.mark.parametrize(
    ("fields", "url", "in_host"),
    [
        ({"s3_bucket": "buck"}, "https://buck.s3.us-east-1.amazonaws.com", True),
        ({"s3_bucket": "buck", "s3_region": "eu-west-1"}, "https://buck.s3.eu-west-1.amazonaws.com", True),
        ({"s3_bucket": "bu.ck"}, "https://s3.us-east-1.amazonaws.com", False),
        ({"s3_bucket": "buck", "s3_endpoint": "http://minio:9000/"}, "http://minio:9000", False),
        ({"s3_bucket": "buck", "s3_endpoint": "S3.Example.COM"}, "https://s3.example.com", False),
        ({"s3_bucket": "buck", "s3_endpoint": "https://buck.example.com:9000"}, "https://buck.example.com:9000", True),
        ({"s3_bucket": "buck", "s3_endpoint": "http://[::1]:9000"}, "http://[::1]:9000", False),
        (
            {"provider": "aliyun_oss", "oss_bucket": "buck", "oss_endpoint": "oss-cn-beijing.aliyuncs.com"},
            "https://buck.oss-cn-beijing.aliyuncs.com",
            True,
        ),
    ],
)
def test_where_a_block_leads(fields: dict[str, str], url: str, in_host: bool) -> None:
    """Style, scheme and port."""
    found = endpoint_of(StorageBlock.parse({"provider": "s3", **KEYS, **fields}), ANYWHERE)
    assert (found.url, found.in_host) == (url, in_host)


@pytest.mark.parametrize("bucket", ["a", "a/b", "a..b", "-ab", "a b", "evil.org/x", "a?b", "a@b", "x" * 300, "ab\n"])
def test_a_bucket_is_one_name(bucket: str) -> None:
    """It becomes a part of an address."""
    with pytest.raises(StorageRejected, match=r"^storage backend not configured$"):
        endpoint_of(StorageBlock(provider="s3", s3_bucket=bucket), ANYWHERE)


@pytest.mark.parametrize("region", ["a/b", "evil.org#", "a.b", "EU", "x" * 70, "a@b"])
def test_a_region_is_one_label(region: str) -> None:
    """So is it."""
    with pytest.raises(StorageRejected, match=r"^storage backend not configured$"):
        endpoint_of(StorageBlock(provider="s3", s3_bucket="buck", s3_region=region), ANYWHERE)


@pytest.mark.parametrize(
    "endpoint",
    [
        "ftp://a.com",
        "http://a.com:0",
        "http://a.com:99999",
        "http://u:p@a.com",
        "http://a.com/x",
        "http://a.com?x",
        "http://a.com#x",
        "http://a com",
        "http://a.com:x",
        "http://[::1",
        "http://é.com",
        "//a.com",
        "http://a.com\\b.com",
    ],
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    """Nothing that two programs could read in two ways."""
    with pytest.raises(StorageHostRefused):
        endpoint_of(StorageBlock(provider="s3", s3_bucket="buck", s3_endpoint=endpoint), ANYWHERE)
