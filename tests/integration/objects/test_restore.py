"""Archives as the present runner packs them, restored into a real workspace; and ours unpacked by its ``tar``."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import tarfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from runner.errors import BadArchive, StorageFailed, TooLarge
from runner.objects.block import StorageBlock
from runner.objects.service import ObjectStorage
from runner.workspace.archives.pack import packed
from runner.workspace.archives.restore import Restored, staged
from runner.workspace.config import WorkspaceConfig
from runner.workspace.history import Workspace
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces
from tests.support.objects.server import BUCKET, S3Server

KEY = "workspaces/workspaces/talk.tgz"
PACK = ("tar", "czf", "-", "--exclude=./uploads", "--exclude=./skills", "-C")
UNPACK = ("tar", "--no-same-owner", "-xzf", "-", "-C")


@pytest.fixture
async def spaces(tmp_path: Path) -> AsyncIterator[Workspaces]:
    """A store of workspaces on a disk."""
    config = WorkspaceConfig(tmp_path / "data", workspace_bytes=8 << 20, max_files=200)
    store = await open_store(config)
    yield Workspaces(store, config)
    await store.close()


async def restore(
    storage: ObjectStorage, block: StorageBlock, spaces: Workspaces, name: str = "talk"
) -> tuple[Workspace, Restored]:
    """As the sessions service does it: all is staged, then put together into a new workspace."""
    async with AsyncExitStack() as stack, storage.open_archive(block, "talk") as archive:
        assert archive is not None
        restored = await staged(
            archive.chunks, stack, lambda: spaces.stage(4 << 20), max_members=200, max_bytes=8 << 20
        )
        workspace, _ = await spaces.create("t", name)
        if restored.files:
            await workspace.put_many(
                list(restored.files.items()), modes=restored.modes, modified_ns=restored.modified_ns
            )
        return workspace, restored


async def contents(workspace: Workspace) -> dict[str, bytes]:
    """All files."""
    found = {}
    for path, entry in workspace.files.items():
        found[path] = b"".join([chunk async for chunk in await workspace.open(entry)])
    return found


def present(folder: Path) -> dict[str, bytes]:
    """A workspace as user code leaves it: other scripts, long names, modes, links, a pipe. Gives its plain files."""
    files = {
        "outputs/report.pdf": b"%PDF-" + os.urandom(100_000),
        "outputs/数据 final.csv": b"a,b\n1,2\n",
        f"deep/{'folder-' * 12}/{'x' * 120}.txt": b"long",
        "run.sh": b"#!/bin/sh\n",
        "empty.txt": b"",
        "line\nbreak.txt": b"odd",
    }
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "run.sh").chmod(0o755)
    os.utime(folder / "empty.txt", (1_600_000_000, 1_600_000_000))
    for name in ("uploads", "skills", "nothing-in-it"):
        (folder / name).mkdir()
    (folder / "uploads" / "again.csv").write_bytes(b"staged anew by the gateway")
    (folder / "skills" / "SKILL.md").write_bytes(b"too")
    (folder / "latest").symlink_to("/etc/passwd")
    os.link(folder / "run.sh", folder / "same.sh")
    os.mkfifo(folder / "pipe")
    return files


async def test_an_archive_of_the_present_runner_restores(
    s3: S3Server, storage: ObjectStorage, block: StorageBlock, spaces: Workspaces, tmp_path: Path
) -> None:
    """F54: every file with its bytes, mode and time; links and pipes are told, and nothing is called a failure."""
    (tmp_path / "old").mkdir()
    files = present(tmp_path / "old")
    data = subprocess.run([*PACK, tmp_path / "old", "."], check=True, capture_output=True).stdout
    s3.client().put_object(Bucket=BUCKET, Key=KEY, Body=data)
    workspace, restored = await restore(storage, block, spaces)
    found = await contents(workspace)
    linked = {"run.sh", "same.sh"} - found.keys()  # of two names of one file tar packs one, the other is a link
    assert len(linked) == 1
    found["run.sh"] = found.pop("same.sh", found.get("run.sh", b""))
    assert found == files
    assert workspace.files[({"run.sh", "same.sh"} - linked).pop()].mode == 0o755
    assert workspace.files["empty.txt"].modified_ns == 1_600_000_000 * 10**9
    assert restored.skipped == 3
    assert sum("symbolic link" in note for note in restored.notes) == 1
    assert sum("hard link" in note for note in restored.notes) == 1
    assert sum("FIFO" in note for note in restored.notes) == 1


async def test_ours_is_one_that_the_present_runner_unpacks(
    storage: ObjectStorage, block: StorageBlock, spaces: Workspaces, s3: S3Server, tmp_path: Path
) -> None:
    """By its own command, which ends with 0; without what gateways stage anew; and it comes back whole."""
    workspace, _ = await spaces.create("t", "ours")
    async with AsyncExitStack() as stack:
        items = []
        for name, data in (
            ("outputs/é.txt", b"1"),
            ("a/" * 40 + "deep", b"2"),
            ("uploads/u", b"3"),
            ("skills/s", b"4"),
        ):
            staging = await stack.enter_async_context(spaces.stage(100))
            await staging.write(data)
            await staging.finish()
            items.append((name, staging))
        await workspace.put_many(items)
    await storage.save_archive(block, "talk", packed(workspace), None)
    data = s3.client().get_object(Bucket=BUCKET, Key=KEY)["Body"].read()
    (tmp_path / "new").mkdir()
    done = subprocess.run([*UNPACK, tmp_path / "new"], input=data, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    unpacked = {
        str(p.relative_to(tmp_path / "new")): p.read_bytes() for p in (tmp_path / "new").rglob("*") if p.is_file()
    }
    assert unpacked == {"outputs/é.txt": b"1", "a/" * 40 + "deep": b"2"}
    again, restored = await restore(storage, block, spaces, "again")
    assert await contents(again) == unpacked and restored.notes == []


def member(
    archive: tarfile.TarFile, name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> None:
    """One member, as it is said."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    archive.addfile(info, io.BytesIO(data))


async def test_a_hostile_archive_stays_inside(
    s3: S3Server, storage: ObjectStorage, block: StorageBlock, spaces: Workspaces, tmp_path: Path
) -> None:
    """What leads out is told and passed over; a link is never followed; what is good is there."""
    out = io.BytesIO()
    outside = tmp_path / "outside"
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.GNU_FORMAT) as archive:
        member(archive, "good.txt", b"good")
        member(archive, str(outside), b"absolute")
        member(archive, f"../../{outside.name}", b"climbs")
        member(archive, "a/../../b", b"climbs later")
        member(archive, "way", kind=tarfile.SYMTYPE, link=str(tmp_path))
        member(archive, "way/outside", b"through the link")
        member(archive, "hard", kind=tarfile.LNKTYPE, link="/etc/passwd")
        member(archive, "null", kind=tarfile.CHRTYPE)
        member(archive, "disk", kind=tarfile.BLKTYPE)
        member(archive, "pipe", kind=tarfile.FIFOTYPE)
        member(archive, "x" * 300, b"too long a name")
        member(archive, "../folder/", kind=tarfile.DIRTYPE)
        member(archive, "good.txt", b"the later one counts")
        member(archive, "last.txt", b"last")
    s3.client().put_object(Bucket=BUCKET, Key=KEY, Body=out.getvalue())
    workspace, restored = await restore(storage, block, spaces)
    assert await contents(workspace) == {
        "good.txt": b"the later one counts",
        "way/outside": b"through the link",
        "last.txt": b"last",
    }
    assert restored.skipped == len(restored.notes) == 10
    assert not outside.exists()


def tar_of(count: int, size: int) -> bytes:
    """A plain tar of so many files of so many bytes."""
    return tar_named(*(f"f{number}" for number in range(count)), size=size)


def tar_named(*names: str, size: int = 1) -> bytes:
    """A plain tar of files of these names."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in names:
            member(archive, name, bytes(size))
    return out.getvalue()


BAD = {
    "no gzip": (b"this is text", BadArchive),
    "empty": (b"", BadArchive),
    "cut in the gzip": (gzip.compress(tar_of(3, 1000))[:-20], BadArchive),
    "cut in the tar": (gzip.compress(tar_of(3, 1000)[:2000]), BadArchive),
    "a damaged header": (gzip.compress(b"x" * 512 + tar_of(1, 10)), BadArchive),
    "no tar": (gzip.compress(b"hello" * 1000), BadArchive),
    "a file in the way of a folder": (gzip.compress(tar_named("a", "a/b")), BadArchive),
    "too many files": (gzip.compress(tar_of(201, 0)), TooLarge),
    "too many bytes": (gzip.compress(tar_of(5, 2 << 20)), TooLarge),
    "one file too large": (gzip.compress(tar_of(1, 5 << 20)), TooLarge),
    "a bomb": (gzip.compress(bytes(512 << 20), 9), TooLarge),
}


@pytest.mark.parametrize("kind", BAD)
async def test_a_restore_that_fails_is_an_error_and_leaves_the_archive(
    s3: S3Server, storage: ObjectStorage, block: StorageBlock, spaces: Workspaces, kind: str
) -> None:
    """A4: no workspace is made, nothing is put, the archive is there as it was."""
    data, error = BAD[kind]
    s3.client().put_object(Bucket=BUCKET, Key=KEY, Body=data)
    begun = time.monotonic()
    with pytest.raises(error):
        await restore(storage, block, spaces)
    assert time.monotonic() - begun < 20
    assert await spaces.find("t", "talk") is None
    assert s3.client().get_object(Bucket=BUCKET, Key=KEY)["Body"].read() == data
    assert {method for method, _ in s3.requests} == {"PUT", "GET"}  # the PUT was ours, and the first


async def test_a_store_that_cannot_be_asked_is_no_empty_archive(
    s3: S3Server, storage: ObjectStorage, spaces: Workspaces
) -> None:
    """A4: refused credentials are an error, not None."""
    block = StorageBlock.parse(s3.block(s3_secret_key="wrong"))
    with pytest.raises(StorageFailed, match=r"^archive read failed: the store refuses these credentials$"):
        await restore(storage, block, spaces)
    with pytest.raises(StorageFailed):
        await storage.find_archive(block, "talk")
    with pytest.raises(StorageFailed):
        await storage.save_archive(block, "talk", packed((await spaces.create("t", "talk"))[0]), None)
    assert s3.keys() == []
