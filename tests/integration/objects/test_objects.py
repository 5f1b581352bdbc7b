"""Puts, signed addresses, deletes and collection against a server that checks every signature."""

from __future__ import annotations

import json
import logging
import os
import time

import httpx
import pytest

from runner.errors import StorageFailed, StorageRejected
from runner.objects.block import StorageBlock
from runner.objects.service import ObjectStorage, Swept
from tests.integration.objects.conftest import Making
from tests.support.objects.misbehaving import listener, metadata
from tests.support.objects.server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from tests.support.objects.signatures import ROLE_TOKEN

ODD = ["a b#c.pdf", "x%41y?z", "ü/文.txt", "a+b&c=d;e,f@g:h", "~t*[x]{y}^|\\", "q'\"<>`!$()"]


@pytest.mark.parametrize("key", ["r.pdf", *ODD])
async def test_an_address_gives_what_was_put_and_nothing_else(
    storage: ObjectStorage, block: StorageBlock, s3: S3Server, key: str
) -> None:
    """Every byte of a name is kept, the signature holds for another implementation, and a changed one does not."""
    put = await storage.put(block, key, b"bytes \x00\xff", "application/pdf", 60)
    assert (put.provider, put.key, put.expires_in) == ("s3", f"workspaces/{key}", 60)
    assert s3.keys() == [f"workspaces/{key}"]
    async with httpx.AsyncClient() as client:
        answer = await client.get(put.url)
        assert (answer.status_code, answer.content) == (200, b"bytes \x00\xff")
        assert answer.headers["content-type"] == "application/pdf"
        assert (await client.get(put.url[:-4] + "0000")).status_code == 403
        assert (await client.put(put.url, content=b"changed")).status_code == 403
        assert (await client.get(put.url.partition("?")[0])).status_code == 403
    assert await storage.delete(block, put.key) == put.key
    assert s3.keys() == []


@pytest.mark.parametrize(("asked", "given"), [(None, 3600), (0, 3600), (-5, 3600), (60, 60), (10**9, 86_400)])
async def test_how_long_an_address_is_valid(
    storage: ObjectStorage, block: StorageBlock, asked: int | None, given: int
) -> None:
    """None or none above zero means the default; the ceiling holds."""
    put = await storage.put(block, "x", b"", None, asked)
    assert put.expires_in == given
    assert f"X-Amz-Expires={given}&" in put.url


async def test_a_bare_key_that_begins_with_the_prefix_is_one_object_for_put_and_delete(
    storage: ObjectStorage, block: StorageBlock, s3: S3Server
) -> None:
    """F52: what was put under a name is what a delete of that name removes."""
    for name in ("x", "workspaces/x", "workspaces/workspaces/x"):
        put = await storage.put(block, name, b"1", None, None)
        assert s3.keys() == [put.key]
        assert await storage.delete(block, name) == put.key
        assert s3.keys() == []


async def test_what_is_not_there_is_deleted_well(storage: ObjectStorage, block: StorageBlock) -> None:
    """Absent is success."""
    assert await storage.delete(block, "nothing") == "workspaces/nothing"


async def test_collection_removes_what_is_old_and_of_nobody_who_lives(
    s3: S3Server, making: Making, block: StorageBlock
) -> None:
    """A11: only archives and parsed documents, only older ones, and never the archive of a live session."""
    storage = making(SANDBOX_STORAGE_HOSTS=s3.host)
    client = s3.client()
    old = ["workspaces/workspaces/dead.tgz", "workspaces/workspaces/dead.previous.tgz", "workspaces/mineru/a/b.json"]
    kept = ["workspaces/workspaces/live.tgz", "workspaces/workspaces/live.previous.tgz"]
    other = [
        "workspaces/report.pdf",
        "workspaces/workspaces/notes.txt",
        "workspaces/workspaces/a/b.tgz",
        "else/mineru/c",
    ]
    for key in (*old, *kept, *other):
        client.put_object(Bucket=BUCKET, Key=key, Body=b"12345")
    assert await storage.gc(block, 3600) == Swept(0, 5, 0)
    later = making(SANDBOX_STORAGE_HOSTS=s3.host)
    later._clock = lambda: time.time() + 7200

    async def live(stem: str) -> bool:
        return stem == "live"

    assert await later.gc(block, 3600, live) == Swept(3, 5, 15)
    assert sorted(s3.keys()) == sorted((*kept, *other))
    assert await later.gc(block, 0) == await later.gc(None, 5) == await later.gc(StorageBlock(), 5) == Swept()


async def test_wrong_credentials_are_said_and_nothing_of_them(
    s3: S3Server, storage: ObjectStorage, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """E49: our own words; the server's answer, which holds a secret here, is in no error and in no log."""
    caplog.set_level(logging.DEBUG)
    block = StorageBlock.parse(s3.block(s3_secret_key="wrong-" + SECRET_KEY))
    with pytest.raises(StorageFailed) as caught:
        await storage.put(block, "x", b"1", None, None)
    assert caught.value.detail == "storage put failed: the store refuses these credentials"
    assert s3.refused == ["SignatureDoesNotMatch"]
    with pytest.raises(StorageFailed, match=r"^storage delete failed: the store refuses these credentials$"):
        await storage.delete(block, "x")
    with pytest.raises(StorageFailed, match=r"^storage gc failed: the store refuses these credentials$"):
        await storage.gc(block, 5)
    seen = (
        f"{caught.value!r} {caught.value.cause} {block!r} {block.public()} {caplog.text} {''.join(capfd.readouterr())}"
    )
    assert SECRET_KEY not in seen
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


async def test_no_token_of_the_runner_goes_along(
    s3: S3Server, storage: ObjectStorage, block: StorageBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's token, endpoint and keys are not for a block that brings its own."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-the-runner")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of-the-runner")
    put = await storage.put(block, "x", b"1", None, None)
    assert "of-the-runner" not in put.url and s3.keys() == ["workspaces/x"] and s3.refused == []


async def test_the_runner_s_own_credentials_are_for_its_own_tenant(
    s3: S3Server, storage: ObjectStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without keys in the block; other tenants must bring theirs."""
    bare = s3.block(s3_access_key="", s3_secret_key="")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.block()["s3_access_key"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    await storage.put(StorageBlock.parse(bare), "x", b"1", None, None)
    assert s3.keys() == ["workspaces/x"]
    with pytest.raises(StorageRejected, match=r"^storage backend not configured$"):
        await storage.put(StorageBlock.parse(bare, "other"), "y", b"1", None, None)


async def test_the_credentials_of_a_role(s3: S3Server, making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched as the environment says; only for a host that is listed itself."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    role = {"AccessKeyId": ACCESS_KEY, "SecretAccessKey": SECRET_KEY, "Token": ROLE_TOKEN}
    document = json.dumps({**role, "Expiration": "2099-01-01T00:00:00Z"}).encode()
    async with listener(metadata(document)) as service:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{service.url}/role")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", os.devnull)
        bare = StorageBlock.parse(s3.block(s3_access_key="", s3_secret_key=""))
        await making(SANDBOX_STORAGE_HOSTS=s3.host).put(bare, "x", b"1", None, None)
        assert s3.keys() == ["workspaces/x"] and service.connections == 1
        suffix = StorageBlock.parse(s3.block(s3_access_key="", s3_secret_key="", s3_endpoint="http://a.example.com"))
        with pytest.raises(StorageFailed, match=r"its host must be listed itself$"):
            await making(SANDBOX_STORAGE_HOSTS="*.example.com").put(suffix, "y", b"1", None, None)
        assert service.connections == 1


async def test_no_such_bucket(s3: S3Server, storage: ObjectStorage) -> None:
    """Its own words too."""
    block = StorageBlock.parse(s3.block(s3_bucket="nobody"))
    with pytest.raises(StorageFailed, match=r"^storage put failed: there is no such bucket$"):
        await storage.put(block, "x", b"1", None, None)


async def test_a_large_object_is_one_request(storage: ObjectStorage, block: StorageBlock, s3: S3Server) -> None:
    """12 MiB: no parts that could be left behind."""
    await storage.put(block, "big", bytes(12 << 20), None, None)
    assert [method for method, _ in s3.requests] == ["PUT"]
