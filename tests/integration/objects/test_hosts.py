"""Which servers a request can make the runner speak to. The verdict is a listener's own count."""

from __future__ import annotations

import socket

import httpx
import obstore
import pytest
from obstore.store import S3Store

from runner.errors import StorageFailed, StorageHostRefused
from runner.objects.block import StorageBlock
from runner.objects.relay import Route
from runner.objects.service import ObjectStorage
from tests.integration.objects.conftest import Making
from tests.support.objects.misbehaving import listener, redirects
from tests.support.objects.server import S3Server

KEYS = {"s3_access_key": "AK", "s3_secret_key": "SK", "oss_access_key_id": "AK", "oss_access_key_secret": "SK"}


def s3_at(endpoint: str, **changed: str) -> StorageBlock:
    """A block that is whole but for its host."""
    fields = {"provider": "s3", "s3_bucket": "bucket", "s3_endpoint": endpoint, **KEYS, **changed}
    return StorageBlock.parse(fields)


async def everything(storage: ObjectStorage, block: StorageBlock) -> None:
    """All operations, each of which is refused."""
    for work in (
        storage.put(block, "x", b"1", None, None),
        storage.delete(block, "x"),
        storage.gc(block, 5),
        storage.find_archive(block, "x"),
        storage.delete_archive(block, "x"),
    ):
        with pytest.raises(StorageHostRefused, match=r"^storage endpoint not allowed"):
            await work
    with pytest.raises(StorageHostRefused):
        storage.check(block)


@pytest.mark.parametrize("listed", ["", "127.0.0.1", "127.0.0.1:1", "localhost", "*.127.0.0.1", "s3.example.com"])
async def test_a_host_that_is_not_listed_is_never_spoken_to(making: Making, listed: str) -> None:
    """E49: 0 hits in every spelling; the control is the same block with the host listed, and it is seen to come."""
    async with listener() as canary:
        port = canary.port
        number = int.from_bytes(socket.inet_aton("127.0.0.1"), "big")
        for endpoint in (
            f"http://127.0.0.1:{port}",
            f"http://127.0.0.1:{port}/",
            f"http://{number}:{port}",
            f"http://0x7f.1:{port}",
            f"http://0177.0.0.1:{port}",
            f"http://[::ffff:127.0.0.1]:{port}",
            f"http://s3.example.com:{port}@127.0.0.1:{port}",
            f"http://s3.example.com\\@127.0.0.1:{port}",
            f"http://127.0.0.1:{port}#s3.example.com",
            f"http://127.0.0.1:{port}?s3.example.com",
            f"http://127.0.0.1:{port}/s3.example.com",
            f"http://127.0.0.1.:{port}",
            f"http://s3.example.com%00.127.0.0.1:{port}",
            f"HTTP://127.0.0.1:{port}",
            f"file://127.0.0.1:{port}",
            "http://",
        ):
            await everything(making(SANDBOX_STORAGE_HOSTS=listed), s3_at(endpoint))
        await everything(
            making(SANDBOX_STORAGE_HOSTS=listed),
            s3_at(
                f"http://127.0.0.1:{port}",
                provider="aliyun_oss",
                oss_bucket="bucket",
                oss_endpoint=f"http://127.0.0.1:{port}",
            ),
        )
        assert canary.connections == 0
        await making(SANDBOX_STORAGE_HOSTS=canary.host).delete(s3_at(canary.url), "x")
        assert canary.connections == 1


async def test_without_a_list_not_even_the_providers_own_hosts(making: Making) -> None:
    """Nothing is asked of anybody unless the operator said so."""
    for block in (
        s3_at(""),
        s3_at("", s3_region="eu-central-1"),
        s3_at("s3.amazonaws.com"),
        s3_at("", provider="aliyun_oss", oss_bucket="bucket", oss_endpoint="oss-cn-hangzhou.aliyuncs.com"),
    ):
        await everything(making(), block)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Addresses of names for this test, one after the other, the last one for ever; other names as they are."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def looked_up(host: str, *more: object, **kwargs: object) -> object:
        answers = known.get(str(host))
        if answers:
            host = answers.pop(0) if len(answers) > 1 else answers[0]
        return real(host, *more, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return known


async def test_a_suffix_does_not_reach_private_addresses(making: Making, names: dict[str, list[str]]) -> None:
    """A name under a listed suffix that leads inside is not followed; the control is listed itself, and it is."""
    names["inside.example.com"] = ["127.0.0.1"]
    async with listener() as canary:
        storage = making(SANDBOX_STORAGE_HOSTS=f"*.example.com:{canary.port}")
        block = s3_at(f"http://inside.example.com:{canary.port}")
        for work in (storage.put(block, "x", b"1", None, None), storage.gc(block, 5), storage.find_archive(block, "x")):
            with pytest.raises(StorageFailed, match=r"leads to an address that is not public"):
                await work
        assert canary.connections == 0
        await making(SANDBOX_STORAGE_HOSTS=f"inside.example.com:{canary.port}").delete(block, "x")
        assert canary.connections == 1
    with pytest.raises(StorageFailed, match=r"the store cannot be reached"):
        await making(SANDBOX_STORAGE_HOSTS="*.invalid").delete(s3_at("http://nowhere.invalid"), "x")


async def test_a_name_that_changes_between_look_and_connection(making: Making, names: dict[str, list[str]]) -> None:
    """Rebinding: what is looked at is what is connected to, so a public answer first gets nobody inside."""
    async with listener() as canary:
        names["rebinds.example.com"] = ["192.0.2.1", "127.0.0.1"]  # not public either, so refused at once
        names["changes.example.com"] = ["8.8.8.8", "127.0.0.1"]
        storage = making(SANDBOX_STORAGE_HOSTS=f"*.example.com:{canary.port}", SANDBOX_S3_CONNECT_TIMEOUT_S="0.2")
        for name in names:
            with pytest.raises(StorageFailed):
                await storage.delete(s3_at(f"http://{name}:{canary.port}"), "x")
        assert canary.connections == 0


async def test_a_redirect_to_another_host_ends(making: Making) -> None:
    """A store that sends reads elsewhere: 0 hits there; the control is the library by itself, which goes."""
    async with listener() as canary, listener(redirects(f"{canary.url}/secret")) as store:
        storage, block = making(SANDBOX_STORAGE_HOSTS=store.host), s3_at(store.url)
        with pytest.raises(
            StorageFailed, match=r" failed: the (store sends to another host|connection to the store broke off)"
        ):
            async with storage.open_archive(block, "x"):
                pass
        with pytest.raises(
            StorageFailed, match=r" failed: the (store sends to another host|connection to the store broke off)"
        ):
            await storage.find_archive(block, "x")
        with pytest.raises(
            StorageFailed, match=r" failed: the (store sends to another host|connection to the store broke off)"
        ):
            await storage.gc(block, 5)
        with pytest.raises(StorageFailed):
            await storage.put(block, "x", b"1", None, None)
        assert store.connections == 4 and canary.connections == 0
        by_itself = S3Store(
            "bucket",
            config={"endpoint": store.url, "access_key_id": "AK", "secret_access_key": "SK"},
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        await obstore.head_async(by_itself, "x")
        assert canary.connections == 1


async def test_the_relay_is_nobody_else_s(making: Making, s3: S3Server) -> None:
    """Another process of the host gets nowhere with it; nor does a bucket's own client to another place."""
    storage = making(SANDBOX_STORAGE_HOSTS=s3.host)
    await storage.find_archive(StorageBlock.parse(s3.block()), "x")
    route = Route("127.0.0.1", s3.port, True, 1.0)
    mine = await storage._relay.address(route)
    port = mine.rpartition(":")[2]
    async with listener() as canary:
        for proxy, url in (
            (f"http://127.0.0.1:{port}", s3.url),
            (f"http://{'0' * 32}:x@127.0.0.1:{port}", s3.url),
            (mine, canary.url),
        ):
            async with httpx.AsyncClient(proxy=proxy) as client:
                with pytest.raises(httpx.TransportError):
                    await client.get(url)
        assert canary.connections == 0
        before = len(s3.requests)
        async with httpx.AsyncClient(proxy=mine) as client:
            assert (await client.get(s3.url)).status_code == 403
        assert len(s3.requests) == before + 1
    storage._relay.forget(route)
    async with httpx.AsyncClient(proxy=mine) as client:
        with pytest.raises(httpx.TransportError):
            await client.get(s3.url)
