"""Which place a block names, however it is written: two that lead to the same objects are equal. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from runner.errors import FolioboxError
from runner.objects import keys
from runner.objects.block import OSS, S3, StorageBlock
from runner.objects.endpoint import DEFAULT_REGION, amazon, parsed


@dataclass(frozen=True, slots=True)
class Place:
    """Holds no credentials. ``where`` is scheme, host and port; the region counts only where it names the host."""

    tenant: str
    provider: str
    prefix: str
    bucket: str = ""
    where: str = ""


def place_of(block: StorageBlock) -> Place:
    """Of any block, also of one that cannot be used: then what cannot be read stands as it was written."""
    prefix = _prefix(block.prefix)
    if block.provider == S3:
        bucket, endpoint = block.s3_bucket, block.s3_endpoint or amazon(block.s3_region or DEFAULT_REGION)
    elif block.provider == OSS:
        bucket, endpoint = block.oss_bucket, block.oss_endpoint
    else:
        return Place(block.tenant, block.provider, prefix)
    return Place(block.tenant, block.provider, prefix, bucket, _where(endpoint, bucket))


def _prefix(prefix: str) -> str:
    try:
        return keys.normal_prefix(prefix)
    except FolioboxError:
        return prefix


def _where(endpoint: str, bucket: str) -> str:
    try:
        scheme, host, port = parsed(endpoint)
    except FolioboxError:
        return endpoint
    return f"{scheme}://{host.removeprefix(f'{bucket}.')}:{port}"
