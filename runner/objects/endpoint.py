"""From a block to an address: which host is asked, in which style, for which region. Pure.

S3 without an endpoint is Amazon's, with the bucket in the host's name where that is possible. With one the bucket is in
the path, unless the endpoint's name begins with it. OSS takes the bucket in the host's name only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from runner.errors import StorageHostRefused, StorageRejected
from runner.objects import hosts
from runner.objects.block import OSS, StorageBlock
from runner.objects.hosts import AllowedHosts

_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]")
_IN_HOST: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_REGION: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_OSS_REGION: Final = re.compile(r"(?:s3\.)?(oss-[a-z0-9-]+?)(?:-internal)?\.aliyuncs\.com")
DEFAULT_REGION: Final = "us-east-1"
_AMAZON: Final = "s3.{}.amazonaws.com"
NOT_CONFIGURED: Final = "storage backend not configured"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a bucket is. ``host`` is the one that must be listed; ``url`` may have the bucket before it."""

    scheme: str
    host: str
    port: int
    bucket: str
    region: str
    in_host: bool

    @property
    def url(self) -> str:
        """Scheme, host and port that are asked, without a path."""
        default = {"http": 80, "https": 443}[self.scheme]
        authority = self.host if self.port == default else f"{self.host}:{self.port}"
        prefix = f"{self.bucket}." if self.in_host and not self.host.startswith(f"{self.bucket}.") else ""
        return f"{self.scheme}://{prefix}{authority}"

    @property
    def asked(self) -> str:
        """The host that is looked up; an IPv6 address in brackets."""
        host = urlsplit(self.url).hostname or ""
        return f"[{host}]" if ":" in host else host


def endpoint_of(block: StorageBlock, allowed: AllowedHosts) -> Endpoint:
    """The endpoint of an effective block of S3 or OSS. Raises StorageRejected, StorageHostRefused."""
    bucket = block.oss_bucket if block.provider == OSS else block.s3_bucket
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise StorageRejected(NOT_CONFIGURED, cause="the bucket's name is none")
    if block.provider == OSS:
        scheme, host, port = parsed(block.oss_endpoint)
        match = _OSS_REGION.fullmatch(host)
        if not _IN_HOST.fullmatch(bucket):
            raise StorageRejected(NOT_CONFIGURED, cause="a bucket of OSS has small letters, digits and hyphens")
        found = Endpoint(scheme, host, port, bucket, match[1] if match else "oss", in_host=True)
    else:
        region = block.s3_region or DEFAULT_REGION
        if not _REGION.fullmatch(region):
            raise StorageRejected(NOT_CONFIGURED, cause="the region's name is none")
        if block.s3_endpoint:
            scheme, host, port = parsed(block.s3_endpoint)
            found = Endpoint(scheme, host, port, bucket, region, in_host=host.startswith(f"{bucket}."))
        else:
            in_host = _IN_HOST.fullmatch(bucket) is not None
            found = Endpoint("https", amazon(region), 443, bucket, region, in_host)
    if not allowed.listed(found.host, found.port):
        raise StorageHostRefused(f"storage endpoint not allowed: {found.host}; list it in {hosts.SETTING}")
    return found


def amazon(region: str) -> str:
    """The host of Amazon's S3 in a region."""
    return _AMAZON.format(region)


def parsed(text: str) -> tuple[str, str, int]:
    """Scheme, host and port of an endpoint: nothing else may be in it. Raises StorageHostRefused."""
    url = text if "://" in text else f"https://{text}"
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname or "", parts.port
    except ValueError:
        raise _refused() from None
    host = f"[{host}]" if ":" in host else host.rstrip(".")
    if port is None:
        port = {"http": 80, "https": 443}.get(scheme, 0)
    bare = url.removeprefix(f"{parts.scheme}://").removeprefix(f"{scheme.upper()}://").removesuffix("/")
    if (
        scheme not in ("http", "https")
        or not hosts.is_host(host)
        or not 0 < port < 65536
        or bare.lower() not in (host, f"{host}.", f"{host}:{port}", f"{host}.:{port}")
    ):
        raise _refused()
    return scheme, host, port


def _refused() -> StorageHostRefused:
    return StorageHostRefused(
        "storage endpoint not allowed: write https://, a host and, where need be, a port, and nothing else"
    )
