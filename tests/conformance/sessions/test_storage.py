"""Sections 3.9 to 3.11 and 9 against a server of the S3 protocol: objects, signed addresses, archives, sweeps."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import httpx
import pytest

from tests.conformance.kit import Place
from tests.conformance.sessions import shapes
from tests.conformance.sessions.client import SandboxError, SessionsClient
from tests.conformance.sessions.conftest import client_of
from tests.conformance.sessions.gateway import Conversation
from tests.support.objects.server import S3Server, s3_server
from tests.support.runner import running


@pytest.fixture(scope="module")
def bucket() -> Iterator[S3Server]:
    """The server, with a bucket that is empty."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, bucket: S3Server) -> Iterator[SessionsClient]:
    """A client of a service that may speak to the server."""
    with running(tmp_path_factory.mktemp("stored"), SANDBOX_STORAGE_HOSTS=bucket.host) as service:
        client = client_of(Place(service.url, service.key))
        yield client
        client.close()


def put(client: SessionsClient, bucket: S3Server, key: str, **fields: object) -> dict[str, object]:
    """``/storage/put`` of a few bytes."""
    body = {"key": key, "data_base64": base64.b64encode(b"bytes").decode(), "storage": bucket.block(), **fields}
    return client.call("POST", "/storage/put", body, shapes.PUT)


def test_put_gives_an_address_that_opens(stored: SessionsClient, bucket: S3Server) -> None:
    made = put(stored, bucket, "mineru/a.bin", content_type="text/plain")
    assert (made["provider"], made["key"], made["expires_in"]) == ("s3", "workspaces/mineru/a.bin", 3600)
    fetched = httpx.get(str(made["url"]))
    assert (fetched.status_code, fetched.content) == (200, b"bytes")
    assert fetched.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(("asked", "given"), [(0, 3600), (-1, 3600), (None, 3600), (60, 60), (10**9, 86400)])
def test_lifetimes_of_addresses(stored: SessionsClient, bucket: S3Server, asked: int | None, given: int) -> None:
    assert put(stored, bucket, "lifetime", expires_in=asked)["expires_in"] == given


def test_delete_takes_bare_and_full_keys_and_what_is_not_there(stored: SessionsClient, bucket: S3Server) -> None:
    for key in ("one.bin", "workspaces/one.bin"):
        put(stored, bucket, "one.bin")
        body = {"key": key, "storage": bucket.block()}
        assert stored.call("POST", "/storage/delete", body, shapes.REMOVED)["key"] == "workspaces/one.bin"
        assert "workspaces/one.bin" not in list(bucket.keys())
        stored.call("POST", "/storage/delete", body, shapes.REMOVED)


def test_a_store_that_refuses_is_502(stored: SessionsClient, bucket: S3Server) -> None:
    wrong = bucket.block(s3_secret_key="wrong")
    for route, more, text in (
        ("put", {"key": "a", "data_base64": ""}, "storage put failed: "),
        ("delete", {"key": "a"}, "storage delete failed: "),
        ("gc", {"max_age_seconds": 5}, "storage gc failed: "),
    ):
        with pytest.raises(SandboxError) as refused:
            stored.call("POST", f"/storage/{route}", {"storage": wrong, **more}, shapes.PUT)
        assert refused.value.status == 502
        assert str(refused.value.detail).startswith(text)
        assert "wrong" not in refused.value.body


def test_a_conversation_moves_to_a_new_session(stored: SessionsClient, bucket: S3Server) -> None:
    chat = Conversation(stored, "conv-s3", storage=bucket.block(), uploads=[("a.txt", b"input")])
    chat.python("open('/workspace/outputs/r.txt', 'w').write('result')")
    chat.release()
    assert "workspaces/workspaces/conv-s3.tgz" in list(bucket.keys())
    assert chat.python("print(open('/workspace/outputs/r.txt').read())").ran.stdout == "result\n"
    chat.clear()
    assert "workspaces/workspaces/conv-s3.tgz" not in list(bucket.keys())


def test_gc_counts_what_it_saw_and_keeps_what_is_new(stored: SessionsClient, bucket: S3Server) -> None:
    put(stored, bucket, "mineru/new.bin")
    swept = stored.call("POST", "/storage/gc", {"storage": bucket.block(), "max_age_seconds": 3600}, shapes.SWEPT)
    assert (swept["deleted"], swept["freed_bytes"]) == (0, 0)
    assert swept["scanned"] >= 1
    assert "workspaces/mineru/new.bin" in list(bucket.keys())
