"""Sessions with object storage over HTTP: a real service, a server of S3, archives that move between runners."""

from __future__ import annotations

import io
import secrets
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.objects.server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server, s3_server
from tests.support.runner import running
from tests.support.sessions import Session, b64, detail


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Iterator[httpx.Client]:
    """A service that may use the server."""
    with (
        running(tmp_path_factory.mktemp("one"), SANDBOX_STORAGE_HOSTS=s3.host, SANDBOX_S3_MAX_ATTEMPTS="1") as service,
        service.client() as made,
    ):
        yield made


def stem() -> str:
    return f"c_{secrets.token_hex(6)}"


def packed(**files: bytes) -> bytes:
    """An archive as ``tar`` makes one of a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_put_gives_an_address_that_opens_and_delete_removes(client: httpx.Client, s3: S3Server) -> None:
    """Fields as the contract has them."""
    body = {"key": "a b.txt", "data_base64": b64(b"hello"), "content_type": "text/plain", "storage": s3.block()}
    put = client.post("/storage/put", json=body)
    assert put.status_code == 200 and put.json().keys() == {"provider", "key", "url", "expires_in"}
    assert put.json()["key"] == "workspaces/a b.txt" and put.json()["expires_in"] == 3600
    assert httpx.get(put.json()["url"]).content == b"hello"
    gone = client.post("/storage/delete", json={"key": "a b.txt", "storage": s3.block()})
    assert (gone.status_code, gone.json()) == (200, {"ok": True, "key": "workspaces/a b.txt"})
    assert httpx.get(put.json()["url"]).status_code == 404


def test_the_texts_of_what_is_refused(client: httpx.Client, s3: S3Server) -> None:
    """Each with its status."""

    def put(key: str = "x", data: str = "", **block: str) -> tuple[int, object]:
        body = {"key": key, "data_base64": data, "storage": s3.block(**block)}
        return detail(client.post("/storage/put", json=body))

    assert put(provider="") == put(s3_bucket="") == (400, "storage backend not configured")
    assert put(provider="gcs") == (400, "unsupported storage provider: gcs")
    assert put(data="%%%") == (400, "invalid base64")
    for key in ("", "../x", "/x", "a\0b"):
        assert put(key) == (400, "invalid storage key")
    assert put(s3_secret_key="wrong") == (502, "storage put failed: the store refuses these credentials")
    status, text = put(s3_endpoint="http://127.0.0.1:9")
    assert status == 400 and str(text).startswith("storage endpoint not allowed: 127.0.0.1")
    gone = client.post("/storage/delete", json={"key": "workspaces/", "storage": s3.block()})
    assert detail(gone) == (400, "key outside storage prefix")
    assert client.post("/storage/gc", json={"max_age_seconds": 5}).json() == {
        "deleted": 0, "scanned": 0, "freed_bytes": 0,
    }  # fmt: skip
    swept = client.post("/storage/gc", json={"max_age_seconds": 5, "storage": s3.block(s3_secret_key="wrong")})
    assert detail(swept) == (502, "storage gc failed: the store refuses these credentials")


def test_an_archive_of_the_present_runner_moves_in_and_out(client: httpx.Client, s3: S3Server, tmp_path: Path) -> None:
    """A1 to A4, F54: restored, run on, saved over what was restored; another runner with no data of ours goes on."""
    name = stem()
    where = f"workspaces/workspaces/{name}.tgz"
    s3.client().put_object(Bucket=BUCKET, Key=where, Body=packed(**{"outputs/old.csv": b"a,b\n1,2\n"}))
    fields = {"archive_key": name, "storage": s3.block()}
    session = Session.new(client, **fields)
    assert session.out("print(open('outputs/old.csv').read()); open('new.txt', 'w').write('more')") == "a,b\n1,2\n\n"
    session.put("uploads/in.bin", b"staged anew by the gateway")
    session.delete()
    data = s3.client().get_object(Bucket=BUCKET, Key=where)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert sorted(tar.getnames()) == ["new.txt", "outputs/old.csv"]
    with running(tmp_path / "two", SANDBOX_STORAGE_HOSTS=s3.host) as other, other.client() as http:
        again = Session.new(http, **fields)
        assert again.out("print(open('new.txt').read())") == "more\n"
        again.out("open('new.txt', 'w').write('newer')")
        again.delete()
    newer = s3.client().get_object(Bucket=BUCKET, Key=where)["Body"].read()
    left_behind = Session.new(client, **fields)
    left_behind.out("open('new.txt', 'w').write('older')")
    left_behind.delete()
    assert s3.client().get_object(Bucket=BUCKET, Key=where)["Body"].read() == newer


def test_no_credential_is_at_rest_or_in_the_log(s3: S3Server, tmp_path: Path) -> None:
    """E49: after a session with storage, no file of the service holds its secret; a control finds what is stored."""
    data = tmp_path / "data"
    with (
        running(data, SANDBOX_STORAGE_HOSTS=s3.host, SANDBOX_LOG_LEVEL="debug") as service,
        service.client() as http,
    ):
        session = Session.new(http, archive_key=stem(), storage=s3.block(prefix="marked-prefix"))
        session.put("x.txt", b"x")
        session.delete(storage=s3.block(s3_secret_key=SECRET_KEY + "-wrong"))
        Session.new(http, archive_key=stem(), storage=s3.block(prefix="marked-prefix"))
    held = [inflated(path.read_bytes()) for path in data.rglob("*") if path.is_file()]
    assert not any(secret.encode() in found for found in held for secret in (SECRET_KEY, ACCESS_KEY))
    assert any(b"marked-prefix" in found for found in held)


def test_a_restart_forgets_credentials_and_nothing_else(s3: S3Server, tmp_path: Path) -> None:
    """A6: the session goes on, nobody is asked in the runner's own name, and it is archived once the block is there."""
    name = stem()
    where = f"workspaces/workspaces/{name}.tgz"
    settings = {"SANDBOX_STORAGE_HOSTS": s3.host, "SANDBOX_S3_MAX_ATTEMPTS": "1"}
    s3.refused.clear()
    with running(tmp_path / "data", **settings) as service, service.client() as http:
        session = Session.new(http, archive_key=name, storage=s3.block())
        session.out("open('kept.txt', 'w').write('kept')")
    with running(tmp_path / "data", **settings) as service, service.client() as http:
        again = Session(http, session.id, session.created)
        assert again.out("print(open('kept.txt').read()); open('more.txt', 'w').write('more')") == "kept\n"
        ended = Session.new(http, archive_key=name).delete()
        assert ended["archived"] is False and "credentials" in ended["archive_error"]
        other = Session.new(http, archive_key=stem(), storage=s3.block())
        other.delete()  # and with the last session of a conversation they are forgotten too
        left = Session.new(http, archive_key=other.created["archive_key"]).delete(discard=True)
        assert "credentials" in left["archive_error"]
        again.delete(storage=s3.block())
        data = s3.client().get_object(Bucket=BUCKET, Key=where)["Body"].read()
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            assert sorted(tar.getnames()) == ["kept.txt", "more.txt"]
        assert s3.refused == []
        assert again.post("/exec", code="1").status_code == 404


def inflated(found: bytes) -> bytes:
    """What a file holds, under zlib or plain."""
    try:
        return zlib.decompress(found)
    except zlib.error:
        return found
