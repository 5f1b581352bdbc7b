"""The local folder: no key leaves it, no link is followed, tenants are apart, a put is whole or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from runner.errors import StorageFailed, StorageRejected
from runner.objects.block import StorageBlock
from runner.objects.bucket import Fault
from runner.objects.config import ObjectsConfig
from runner.objects.local import LocalBucket
from runner.objects.service import ObjectStorage, Swept

BLOCK = StorageBlock.parse({"provider": "local", "prefix": "p"})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of the provider."""
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    return tmp_path / "root"


@pytest.fixture
def storage(root: Path, tmp_path: Path) -> ObjectStorage:
    """A service with that folder."""
    return ObjectStorage(ObjectsConfig.from_env({"SANDBOX_LOCAL_STORAGE_DIR": str(root)}), tmp_path)


async def test_a_put_without_an_address_leaves_no_object(storage: ObjectStorage, root: Path) -> None:
    """F53: the contract's answer, and nothing is written for it."""
    with pytest.raises(StorageRejected, match=r"^presigned URLs are unsupported for local storage$"):
        await storage.put(BLOCK, "x", b"1", None, None)
    assert list(root.rglob("*")) == []
    with pytest.raises(StorageRejected, match=r"^invalid storage key$"):
        await storage.put(BLOCK, "../x", b"1", None, None)


async def test_an_object_is_written_read_listed_and_removed(root: Path) -> None:
    """For nobody else on the host to read."""
    bucket = LocalBucket(root)
    await bucket.put("p/a/b.txt", memoryview(b"hello"), "text/plain")
    await bucket.put("p/a/b.txt", memoryview(b"again"), "text/plain")
    assert (root / "p/a/b.txt").stat().st_mode & 0o777 == 0o600
    assert (root / "p/a").stat().st_mode & 0o777 == 0o700
    async with bucket.open("p/a/b.txt") as opened:
        assert b"".join([chunk async for chunk in opened.chunks]) == b"again"
    assert [[each.key for each in page] async for page in bucket.list("p/")] == [["p/a/b.txt"]]
    await bucket.delete("p/a/b.txt")
    await bucket.delete("p/a/b.txt")
    await bucket.delete("none/at/all")
    assert await bucket.head("p/a/b.txt") is None
    assert os.listdir(root / "p/a") == []


async def test_no_link_is_followed(root: Path, tmp_path: Path) -> None:
    """Neither in the way nor at its end; the control without links is seen to work."""
    bucket = LocalBucket(root)
    (root / "way").symlink_to(tmp_path / "outside")
    (root / "end").symlink_to(tmp_path / "outside" / "secret")
    (root / "plain").mkdir()
    for key in ("way/secret", "end"):
        with pytest.raises(Fault):
            async with bucket.open(key):
                pass
        with pytest.raises(Fault):
            await bucket.put(key, memoryview(b"overwritten"), "")
        with pytest.raises(Fault):
            await bucket.delete(key)
        with pytest.raises(Fault):
            await bucket.head(key)
    with pytest.raises(Fault):
        await bucket.put("way/new", memoryview(b"new"), "")
    with pytest.raises(Fault):
        _ = [page async for page in bucket.list("way/")]
    (root / "plain" / "link").symlink_to(tmp_path / "outside" / "secret")
    assert [page async for page in bucket.list("plain/")] == [[]]
    assert (tmp_path / "outside" / "secret").read_bytes() == b"secret"
    assert os.listdir(tmp_path / "outside") == ["secret"]
    await bucket.put("plain/new", memoryview(b"new"), "")
    assert (root / "plain/new").read_bytes() == b"new"


@pytest.mark.parametrize(
    "key", ["../outside/secret", "a/../../outside/secret", "/etc/passwd", "a//b", "./a", "", "a\0b"]
)
async def test_no_name_leaves_the_folder(root: Path, key: str) -> None:
    """Checked here too, whatever the service has checked."""
    bucket = LocalBucket(root)
    with pytest.raises(Fault):
        await bucket.head(key)
    with pytest.raises(Fault):
        await bucket.put(key, memoryview(b"x"), "")


async def test_what_is_no_file_is_not_touched(root: Path) -> None:
    """A pipe would keep a reader waiting for ever."""
    bucket = LocalBucket(root)
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for key in ("pipe", "folder"):
        with pytest.raises(Fault):
            async with bucket.open(key):
                pass
        with pytest.raises(Fault):
            await bucket.put(key, memoryview(b"x"), "")
        with pytest.raises(Fault):
            await bucket.delete(key)


async def test_tenants_are_apart(storage: ObjectStorage, root: Path) -> None:
    """A stem of another tenant is another archive, and its folder is no prefix."""

    async def source() -> object:
        yield b"of a"

    of_a = StorageBlock.parse(BLOCK.public(), "a")
    await storage.save_archive(of_a, "talk", source(), None)  # type: ignore[arg-type]
    assert (root / "@a/p/workspaces/talk.tgz").read_bytes() == b"of a"
    assert await storage.find_archive(BLOCK, "talk") is None
    assert await storage.find_archive(StorageBlock.parse(BLOCK.public(), "b"), "talk") is None
    with pytest.raises(StorageRejected, match=r"^invalid storage key$"):
        await storage.find_archive(StorageBlock.parse({"provider": "local", "prefix": "@a/p"}), "talk")


async def test_collection_by_age(storage: ObjectStorage, root: Path) -> None:
    """Old archives go, links and young ones stay."""
    (root / "p/workspaces").mkdir(parents=True)
    for name, age in (("old.tgz", 10_000), ("young.tgz", 0), ("old.txt", 10_000)):
        path = root / "p/workspaces" / name
        path.write_bytes(b"123")
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    (root / "p/workspaces/link.tgz").symlink_to(root)
    assert await storage.gc(BLOCK, 3600) == Swept(1, 2, 3)
    assert sorted(os.listdir(root / "p/workspaces")) == ["link.tgz", "old.txt", "young.tgz"]


async def test_a_folder_that_cannot_be_written_is_said(storage: ObjectStorage, root: Path) -> None:
    """In words of ours, without its path."""
    (root / "p").write_bytes(b"a file where the folder should be")
    with pytest.raises(StorageFailed, match=r"^storage delete failed: the folder of the runner cannot do this$"):
        await storage.delete(BLOCK, "x/y")
