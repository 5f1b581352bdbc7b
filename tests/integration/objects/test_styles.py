"""Path style and virtual hosted style on the wire, for S3 and OSS: the server stands in as the proxy to their hosts."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx
import pytest

from runner.objects.block import StorageBlock
from tests.integration.objects.conftest import Making
from tests.support.objects.server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server

STYLES = {
    "s3 with an endpoint": ({"s3_endpoint": "http://s3.test"}, "s3.test", f"/{BUCKET}/"),
    "s3 with the bucket in it": ({"s3_endpoint": f"http://{BUCKET}.s3.test"}, f"{BUCKET}.s3.test", "/"),
    "oss": (
        {"provider": "aliyun_oss", "oss_endpoint": "http://oss-cn-hangzhou.aliyuncs.com"},
        f"{BUCKET}.oss-cn-hangzhou.aliyuncs.com",
        "/",
    ),
    "oss inside": (
        {"provider": "aliyun_oss", "oss_endpoint": "http://oss-cn-hangzhou-internal.aliyuncs.com"},
        f"{BUCKET}.oss-cn-hangzhou-internal.aliyuncs.com",
        "/",
    ),
}


@pytest.mark.parametrize("style", STYLES)
async def test_the_bucket_stands_where_the_provider_wants_it(
    s3: S3Server, making: Making, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    """Puts, addresses, archives, listings and deletes, each with a signature that holds for that host."""
    fields, host, path = STYLES[style]
    monkeypatch.setenv("http_proxy", s3.url)
    monkeypatch.setenv("no_proxy", "")
    storage = making(
        SANDBOX_STORAGE_HOSTS="s3.test *.s3.test oss-cn-hangzhou.aliyuncs.com "
        f"oss-cn-hangzhou-internal.aliyuncs.com {BUCKET}.s3.test"
    )
    keys = {"oss_bucket": BUCKET, "oss_access_key_id": ACCESS_KEY, "oss_access_key_secret": SECRET_KEY}
    block = StorageBlock.parse(s3.block(**keys, **fields))
    put = await storage.put(block, "a b/c+d.txt", b"hello", "text/plain", 60)
    parts = urlsplit(put.url)
    assert (parts.scheme, parts.netloc, parts.path) == ("http", host, f"{path}workspaces/a%20b/c%2Bd.txt")
    region = "oss-cn-hangzhou" if "oss" in style else "us-east-1"
    assert f"%2F{region}%2Fs3%2Faws4_request" in put.url
    async with httpx.AsyncClient(proxy=s3.url) as client:
        answer = await client.get(put.url)
    assert (answer.status_code, answer.content) == (200, b"hello")

    async def source() -> object:
        yield b"archive"

    stamp = await storage.save_archive(block, "talk", source(), None)  # type: ignore[arg-type]
    assert await storage.find_archive(block, "talk") == stamp
    assert (await storage.gc(block, 3600)).scanned == 1
    await storage.delete(block, put.key)
    await storage.delete_archive(block, "talk")
    assert {urlsplit(url).netloc for _, url in s3.requests} == {host}
    assert s3.refused == []
    monkeypatch.delenv("http_proxy")
    assert s3.keys() == []
