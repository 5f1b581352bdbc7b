"""Archives of sessions, read with tolerance: what no workspace can hold is passed over, what follows it is intact."""

from __future__ import annotations

import asyncio
import tarfile

import pytest

from runner.errors import BadArchive, InvalidPath
from runner.workspace.archives import tar_reader
from runner.workspace.archives.pack import archived
from runner.workspace.archives.source import Source
from tests.unit.archives.lab import info, pieces, read_tar, tar
from tests.unit.workspace.workspace_lab import fake_entry

PASSED_OVER = {
    "an absolute name": info("/etc/cron.d/x", b"a" * 700),
    "a name that climbs": info("../../x", b"a" * 700),
    "a name that climbs later": info("a/../../x", b"a"),
    "a long name": info("x" * 256, b"a" * 512),
    "a deep name": info("/".join("a" * 80), b"a"),
    "a name that is not UTF-8": info("caf\udce9", b"a" * 513),
    "a symbolic link": info("l", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": info("l", type=tarfile.LNKTYPE, linkname="first"),
    "a character device": info("l", type=tarfile.CHRTYPE),
    "a block device": info("l", type=tarfile.BLKTYPE),
    "a pipe": info("l", type=tarfile.FIFOTYPE),
    "a folder outside": info("../x/", type=tarfile.DIRTYPE),
}


def tolerant(data: bytes) -> tuple[dict[str, bytes], list[str]]:
    """Files and notes."""
    notes: list[str] = []

    async def read() -> dict[str, bytes]:
        source = Source(pieces(data, 700), 1 << 20)
        return {
            member.path: b"".join([chunk async for chunk in member.content])
            async for member in tar_reader.members(source, 100, 1 << 20, notes.append)
        }

    return asyncio.run(read()), notes


@pytest.mark.parametrize("kind", PASSED_OVER)
@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_a_workspace_cannot_hold_is_passed_over(kind: str, format: int) -> None:
    """The control: uploads, which are read strictly, refuse the same archive whole."""
    data = tar(info("first", b"1" * 600), PASSED_OVER[kind], info("last", b"2"), format=format)
    files, notes = tolerant(data)
    assert files == {"first": b"1" * 600, "last": b"2"}
    assert len(notes) == 1
    with pytest.raises((BadArchive, InvalidPath)):
        read_tar(data)


@pytest.mark.parametrize("kind", [b"S", b"M", b"V", b"D", b"Z"])
def test_what_cannot_be_skipped_safely_is_refused(kind: bytes) -> None:
    """Members whose length programs read in different ways."""
    with pytest.raises(BadArchive):
        tolerant(tar(info("odd", type=kind), info("last", b"2")))


def test_what_goes_into_an_archive() -> None:
    """All but what a gateway stages anew; names that only begin alike are no such folders."""
    files = {path: fake_entry(path) for path in ("a", "uploads/x", "skills/y/z", "uploads.txt", "outputs/uploads/k")}
    items = archived(files, frozenset(("uploads", "skills", "skills/empty", "work", "uploads2")))
    assert [item.path for item in items] == ["a", "outputs/uploads/k", "uploads.txt", "uploads2", "work"]
