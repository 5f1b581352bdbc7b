"""Archives that are written: every unpacker reads them, they are the same each time, and a broken one has no end."""

from __future__ import annotations

import asyncio
import io
import random
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from runner.errors import StoreFailed
from runner.workspace.archives.tar_writer import tar_gz
from runner.workspace.archives.zip_writer import ZIP64_FROM, ZipWriter
from tests.unit.archives.lab import Blobs, items, read_tar

FILES = {
    "a.txt": b"hello " * 50_000,
    "bild ü 中.png": bytes(range(256)) * 900,
    "empty": b"",
    "deep/" * 40 + "x" * 200: b"1",
    "new\nline": b"2",
    "-rf": b"3",
    "back\\slash": b"4",
}
FOLDERS = ("folder/inner", "outputs")


def zipped(blobs: Blobs, zip64_from: int = ZIP64_FROM) -> AsyncGenerator[bytes, None]:
    return ZipWriter(zip64_from).write(items(FILES, FOLDERS), blobs.opener)


def tarred(blobs: Blobs) -> AsyncGenerator[bytes, None]:
    return tar_gz(items(FILES, FOLDERS), blobs.opener)


def collected(stream: AsyncGenerator[bytes, None]) -> bytes:
    async def collect() -> bytes:
        return b"".join([piece async for piece in stream])

    return asyncio.run(collect())


@pytest.mark.parametrize("zip64_from", [ZIP64_FROM, 100_000, 0])
def test_zip_comes_back(zip64_from: int, tmp_path: Path) -> None:
    data = collected(zipped(Blobs(FILES), zip64_from))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        found = {entry.filename: archive.read(entry) for entry in archive.infolist()}
        assert found == {**FILES, **{f"{folder}/": b"" for folder in FOLDERS}}
        (entry,) = [entry for entry in archive.infolist() if entry.filename == "a.txt"]
        assert (entry.external_attr >> 16, entry.date_time) == (0o100755, (2023, 11, 14, 22, 13, 20))
    program = shutil.which("unzip")
    if program is not None:
        (tmp_path / "a.zip").write_bytes(data)
        done = subprocess.run([program, "-tq", "a.zip"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_more_members_than_16_bits_count() -> None:
    many = {f"{number:05}": b"" for number in range(66_000)}
    data = collected(ZipWriter().write(items(many), Blobs(many).opener))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert len(archive.infolist()) == 66_000


def test_tar_comes_back_and_our_own_reader_takes_it() -> None:
    data = collected(tarred(Blobs(FILES)))
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        found = {entry.name: archive.extractfile(entry) for entry in archive}
        assert {name: file.read() for name, file in found.items() if file is not None} == FILES
        assert {name for name, file in found.items() if file is None} == set(FOLDERS)
    again = read_tar(data, gz=True)
    assert again == {path: (content, 0o755, 1_700_000_000_000_000_000) for path, content in FILES.items()}


def test_the_same_files_give_the_same_bytes() -> None:
    assert collected(zipped(Blobs(FILES))) == collected(zipped(Blobs(FILES)))
    assert collected(tarred(Blobs(FILES))) == collected(tarred(Blobs(FILES)))


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
@pytest.mark.parametrize("content", [b"hello", FILES["a.txt"] + b"!"], ids=["short", "long"])
def test_a_file_of_another_size_breaks_the_archive(kind: str, content: bytes) -> None:
    blobs = Blobs({**FILES, "a.txt": content})
    got = bytearray()

    async def read() -> None:
        async for piece in zipped(blobs) if kind == "zip" else tarred(blobs):
            got.extend(piece)

    with pytest.raises(StoreFailed):
        asyncio.run(read())
    assert blobs.open == 0
    with pytest.raises((zipfile.BadZipFile, EOFError, tarfile.TarError)):
        unpack(kind, bytes(got))


def unpack(kind: str, data: bytes) -> None:
    if kind == "zip":
        zipfile.ZipFile(io.BytesIO(data)).close()
    else:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r|gz") as archive:
            for _ in archive:
                pass


@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
async def test_leaving_closes_what_is_open(kind: str) -> None:
    files = {"a": random.Random(1).randbytes(1 << 20)}
    blobs = Blobs(files)
    writer = ZipWriter().write if kind == "zip" else tar_gz
    async with aclosing(writer(items(files), blobs.opener)) as stream:
        async for _ in stream:
            if blobs.open:
                break
        assert blobs.open == 1
    assert blobs.open == 0
