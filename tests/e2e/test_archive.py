"""The workspace as one archive: of any version and folder, in flat memory, and broken where a file is lost."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.runner import Chat, Runner, running
from tests.support.waiting import until

Place = tuple[Runner, Chat, Path]


def get(chat: Chat, **params: Any) -> httpx.Response:
    return chat.http.get(f"/v1/conversations/{chat.id}/archive", params=params)


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def test_the_workspace_as_it_is_and_as_it_was(chat: Chat) -> None:
    chat.ok("import os; open('outputs/a.txt', 'w').write('one'); os.makedirs('made/empty'); os.symlink('/etc', 'l')")
    chat.put("outputs/a.txt", b"two")
    chat.put("b.txt", b"b")
    now, then = get(chat), get(chat, version=1)
    assert (now.status_code, now.headers["content-type"]) == (200, "application/zip")
    assert f'attachment; filename="{chat.id}.zip"' in now.headers["content-disposition"]
    files = {name: content for name, content in unzipped(now.content).items() if not name.endswith("/")}
    assert files == {"outputs/a.txt": b"two", "b.txt": b"b"}
    assert "made/empty/" in unzipped(now.content)
    assert unzipped(then.content)["outputs/a.txt"] == b"one"
    assert "b.txt" not in unzipped(then.content)
    assert list(unzipped(get(chat, prefix="outputs").content)) == ["outputs/a.txt"]
    assert get(chat).content == now.content


def test_tar_gz(chat: Chat) -> None:
    chat.put("a.txt", b"one")
    answer = get(chat, format="tar.gz")
    assert answer.headers["content-type"] == "application/gzip"
    with tarfile.open(fileobj=io.BytesIO(answer.content), mode="r:gz") as archive:
        assert "a.txt" in archive.getnames()


def test_what_is_not_there(chat: Chat) -> None:
    chat.put("a.txt", b"one")
    for params, status in (({"version": 9}, 404), ({"prefix": "none/"}, 404), ({"format": "rar"}, 422),
                           ({"prefix": "../"}, 422)):  # fmt: skip
        answer = get(chat, **params)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A service whose memory and store are looked at from outside."""
    with running(tmp_path_factory.mktemp("archives"), SANDBOX_POOL_SIZE="0") as service:
        yield service


@pytest.fixture
def place(watched: Runner) -> Iterator[Place]:
    """That service, a conversation of its own, and the service's data."""
    with watched.client() as http:
        chat = Chat(http)
        yield watched, chat, watched.data
        chat.purge()


@pytest.mark.parametrize("format", ["zip", "tar.gz"])
def test_memory_is_flat(place: Place, format: str) -> None:
    service, chat, _ = place
    block = os.urandom(1 << 20)
    for number in range(6):
        chat.put(f"{number}.bin", (block[number:] + block[:number]) * 16)
    before, peak, size = rss_bytes(service.pid), 0, 0
    with chat.http.stream("GET", f"/v1/conversations/{chat.id}/archive", params={"format": format}) as answer:
        for chunk in answer.iter_raw():
            size += len(chunk)
            peak = max(peak, rss_bytes(service.pid))
    assert size > 90 << 20
    assert peak - before < 32 << 20, f"{(peak - before) >> 20} MiB more for an archive of {size >> 20} MiB"


@pytest.mark.parametrize("format", ["zip", "tar.gz"])
def test_a_lost_file_breaks_the_archive_visibly(place: Place, format: str) -> None:
    _, chat, data = place
    for name in ("a.bin", "b.bin", "c.bin"):
        chat.put(name, name.encode() + os.urandom(300_000))
    lost = hashlib.sha256(chat.get("b.bin").content).hexdigest()
    blobs = [path for path in data.rglob("*") if path.is_file() and lost in path.name]
    assert blobs
    for path in blobs:
        path.unlink()
    got = bytearray()
    with (
        pytest.raises(httpx.RemoteProtocolError),
        chat.http.stream("GET", f"/v1/conversations/{chat.id}/archive", params={"format": format}) as answer,
    ):
        for chunk in answer.iter_raw():
            got.extend(chunk)
    with pytest.raises((zipfile.BadZipFile, EOFError, tarfile.TarError)):
        if format == "zip":
            unzipped(bytes(got))
        else:
            with tarfile.open(fileobj=io.BytesIO(bytes(got)), mode="r|gz") as archive:
                archive.getnames()


def test_leaving_frees_everything(place: Place) -> None:
    service, chat, _ = place
    for number in range(4):
        chat.put(f"{number}.bin", os.urandom(8 << 20))
    files = Path(f"/proc/{service.pid}/fd")

    def blobs() -> int:
        return sum("/store/objects/" in os.readlink(fd) for fd in files.iterdir() if fd.is_symlink())

    assert blobs() == 0
    for _ in range(5):
        with chat.http.stream("GET", f"/v1/conversations/{chat.id}/archive") as answer:
            assert next(answer.iter_raw())
            answer.close()
    until(lambda: not blobs(), "all are closed")
    assert len(get(chat).content) > 32 << 20
