"""The tar reader against what tar programs write and against archives made to harm."""

from __future__ import annotations

import gzip
import io
import os
import random
import subprocess
import tarfile
from pathlib import Path

import pytest

from runner.errors import BadArchive, CallerError, InvalidPath, TooLarge
from tests.unit.archives.lab import END, block, info, read_tar, tar

LONG = "ordner/" + "ü" * 120 + ".txt"


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("piece", [1, 511, 512, 4096, 1 << 20])
def test_files_of_all_formats_come_back(format: int, piece: int) -> None:
    names = ["a.txt", "folder/b.bin", "./dotted", "空.txt"] + ([] if format == tarfile.USTAR_FORMAT else [LONG])
    contents = [bytes([number]) * (number * 700) for number in range(len(names))]
    folders = [info("folder/", type=tarfile.DIRTYPE), info("./", type=tarfile.DIRTYPE)]
    data = tar(*folders, *(info(n, c, mode=0o755) for n, c in zip(names, contents, strict=True)), format=format)
    expected = {name.removeprefix("./"): content for name, content in zip(names, contents, strict=True)}
    found = read_tar(data, piece=piece)
    assert {path: content for path, (content, _, _) in found.items()} == expected
    assert {(mode, time) for _, mode, time in found.values()} == {(0o755, 1_700_000_000_000_000_000)}


def test_times_with_fractions_and_modes_that_lock_out() -> None:
    found = read_tar(tar(info("a", mode=0, mtime=1.5), info("b", mode=0o4777, mtime=-3)))
    assert found["a"][1:] == (0o600, 1_500_000_000)
    assert found["b"][1:] == (0o777, 0)


@pytest.mark.parametrize("level", [0, 9])
def test_gzip_in_one_member_or_many(level: int) -> None:
    plain = tar(info("a", b"x" * 100_000))
    half = len(plain) // 2
    for packed in (gzip.compress(plain, level), gzip.compress(plain[:half]) + gzip.compress(plain[half:])):
        for piece in (1, 100, 1 << 20):
            assert read_tar(packed, gz=True, piece=piece)["a"][0] == b"x" * 100_000


HOSTILE: dict[str, tuple[bytes, type[CallerError], str]] = {
    "climbs out": (tar(info("../x", b"1")), InvalidPath, "'..'"),
    "climbs out inside": (tar(info("a/../../x", b"1")), InvalidPath, "'..'"),
    "absolute": (tar(info("/etc/passwd", b"1")), InvalidPath, "absolute"),
    "absolute in the workspace": (tar(info("/workspace/x", b"1")), InvalidPath, "absolute"),
    "folder climbs out": (tar(info("../x/", type=tarfile.DIRTYPE)), InvalidPath, "'..'"),
    "folder absolute": (tar(info("/x/", type=tarfile.DIRTYPE)), InvalidPath, "absolute"),
    "symbolic link": (tar(info("l", type=tarfile.SYMTYPE, linkname="a")), BadArchive, "symbolic link"),
    "link out": (tar(info("l", type=tarfile.SYMTYPE, linkname="/etc")), BadArchive, "symbolic link"),
    "hard link": (tar(info("l", type=tarfile.LNKTYPE, linkname="a")), BadArchive, "hard link"),
    "character device": (tar(info("d", type=tarfile.CHRTYPE)), BadArchive, "character device"),
    "block device": (tar(info("d", type=tarfile.BLKTYPE)), BadArchive, "block device"),
    "fifo": (tar(info("f", type=tarfile.FIFOTYPE)), BadArchive, "FIFO"),
    "sparse": (block(kind=b"S", size=b"77777777777\0") + END, BadArchive, "sparse"),
    "sparse in pax": (tar(info("s", b"1", pax_headers={"GNU.sparse.realsize": "9" * 15})), BadArchive, "sparse"),
    "pax giant": (block(kind=b"x", size=b"00010000000\0") + END, BadArchive, "limit is 65536"),
    "long name giant": (block(kind=b"L", size=b"00010000000\0") + END, BadArchive, "limit is 4096"),
    "pax size beyond": (tar(info("s", b"1", pax_headers={"size": "9" * 18})), TooLarge, "more than"),
    "pax size negative": (tar(info("s", b"1", pax_headers={"size": "-1"})), BadArchive, "whole number"),
    "pax rubbish": (block(kind=b"x", size=b"00000000005\0") + b"99 x=".ljust(512, b"\0") + END, BadArchive, "PAX"),
    "pax zero record": (block(kind=b"x", size=b"00000000005\0") + b"0 x=\n".ljust(512, b"\0") + END, BadArchive, "PAX"),
    "pax twice": (
        2 * (block(kind=b"x", size=b"00000000010\0") + b"8 a=bcd\n".ljust(512, b"\0")) + block() + END,
        BadArchive,
        "twice",
    ),
    "pax alone": (
        block(kind=b"x", size=b"00000000010\0") + b"8 a=bcd\n".ljust(512, b"\0") + END,
        BadArchive,
        "no member",
    ),
    "global path": (
        block(kind=b"g", size=b"00000000013\0") + b"11 path=ab\n".ljust(512, b"\0") + block() + END,
        BadArchive,
        "global",
    ),
    "negative size": (block(size=b"\xff" * 12) + END, BadArchive, "negative"),
    "endless size": (block(size=b"\x80" + b"\xff" * 11) + END, TooLarge, "more than"),
    "size in words": (block(size=b"lots\0\0\0\0\0\0\0\0") + END, BadArchive, "octal"),
    "name not UTF-8": (block(name=b"\xff\xfe") + END, InvalidPath, "not UTF-8"),
    "no name": (block(name=b"") + END, InvalidPath, "empty"),
    "name too long": (tar(info("x" * 300, b"1")), InvalidPath, "255"),
    "too deep": (tar(info("a/" * 70 + "b", b"1")), InvalidPath, "folders deep"),
    "wrong checksum": (block()[:148] + b"000000\0 " + block()[156:] + END, BadArchive, "checksum"),
    "not a tar": (b"PK\x03\x04" + b"x" * 2000, BadArchive, "not a tar"),
    "nothing": (b"", BadArchive, "ends early"),
    "half a header": (block()[:300], BadArchive, "ends early"),
    "half a file": (block(size=b"00000001000\0") + b"x" * 100, BadArchive, "ends early"),
    "no end": (block(), BadArchive, "ends early"),
    "half an end": (block() + bytes(512), BadArchive, "ends early"),
    "zeros in the middle": (block() + bytes(512) + block(name=b"y") + END, BadArchive, "block of zeros"),
    "a second archive": (tar(info("a")) + tar(info("b")), BadArchive, "follows the end"),
    "folder with content": (block(kind=b"5", size=b"00000001000\0") + bytes(512) + END, BadArchive, "has content"),
    "unknown type": (block(kind=b"Z") + END, BadArchive, "unknown type"),
    "too many members": (tar(*(info(str(n)) for n in range(101))), TooLarge, "100 members"),
    "too many folders": (tar(*(info(f"{n}/", type=tarfile.DIRTYPE) for n in range(101))), TooLarge, "100 members"),
    "too many bytes": (tar(info("a", b"x" * (1 << 19)), info("b", b"x" * (1 << 19) + b"y")), TooLarge, "1048576"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_archives_are_refused_and_say_why(case: str) -> None:
    data, kind, mentioned = HOSTILE[case]
    for piece in (37, 1 << 20):
        with pytest.raises(kind, match=mentioned):
            read_tar(data, piece=piece)


ESCAPES = {
    "climbs out": tar(info("../outside", b"evil")),
    "writes through a link": tar(
        info("l", type=tarfile.SYMTYPE, linkname=".."), info("l/outside", b"evil"), format=tarfile.GNU_FORMAT
    ),
}


@pytest.mark.parametrize("case", ESCAPES)
def test_what_is_refused_does_escape_where_nobody_looks(case: str, tmp_path: Path) -> None:
    """The control: the same bytes, unpacked without care, write outside."""
    (tmp_path / "inside").mkdir()
    with tarfile.open(fileobj=io.BytesIO(ESCAPES[case])) as archive:
        archive.extractall(tmp_path / "inside", filter="fully_trusted")
    assert (tmp_path / "outside").read_bytes() == b"evil"
    with pytest.raises(CallerError):
        read_tar(ESCAPES[case])


@pytest.mark.parametrize("format", ["v7", "ustar", "oldgnu", "gnu", "posix"])
def test_what_the_tar_program_writes(format: str, tmp_path: Path) -> None:
    long = "folder/" * 12 + "name.txt"  # 92 bytes, which every format holds
    (tmp_path / long).parent.mkdir(parents=True)
    (tmp_path / long).write_bytes(b"long")
    (tmp_path / "run.sh").write_bytes(b"#!/bin/sh\n" * 100)
    (tmp_path / "run.sh").chmod(0o755)
    os.utime(tmp_path / "run.sh", (1_600_000_000, 1_600_000_000))
    command = ["tar", f"--format={format}", "-cf", "-", "-C", str(tmp_path), "."]
    found = read_tar(subprocess.run(command, capture_output=True, check=True).stdout)
    assert found["run.sh"] == (b"#!/bin/sh\n" * 100, 0o755, 1_600_000_000_000_000_000)
    assert found[long][0] == b"long"
    assert len(found) == 2


@pytest.mark.parametrize("format", ["gnu", "posix"])
def test_sparse_files_of_the_tar_program(format: str, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"x")
    command = ["tar", f"--format={format}", "--sparse", "-cf", "-", "-C", str(tmp_path), "sparse"]
    data = subprocess.run(command, capture_output=True, check=True).stdout
    assert len(data) < 100_000
    with pytest.raises(BadArchive, match="sparse"):
        read_tar(data)


def test_a_bomb_is_ended_by_counted_bytes() -> None:
    bomb = gzip.compress(block(size=b"77777777777\0") + bytes(64 << 20))
    assert len(bomb) < 100_000
    with pytest.raises(TooLarge):
        read_tar(bomb, gz=True)
    endless_padding = gzip.compress(tar(info("a")) + bytes(64 << 20))
    with pytest.raises(TooLarge):
        read_tar(endless_padding, gz=True)


@pytest.mark.parametrize("cut", [0, 1, 10, 30, -1, -8])
def test_gzip_that_is_cut_or_none(cut: int) -> None:
    packed = gzip.compress(tar(info("a", random.Random(1).randbytes(5000))))
    with pytest.raises(BadArchive, match="ends early"):
        read_tar(packed[:cut], gz=True)
    with pytest.raises(BadArchive, match="not gzip"):
        read_tar(tar(info("a", b"x")), gz=True)
    with pytest.raises(BadArchive):
        read_tar(packed + b"rubbish", gz=True)


def test_damaged_archives_never_raise_anything_else() -> None:
    """2,000 archives, each with a few bytes changed: read, or refused as the caller's fault."""
    whole = tar(info(LONG, b"x" * 600), info("b/c", b"y" * 10), info("f/", type=tarfile.DIRTYPE))
    rng = random.Random(20)
    refused = 0
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            read_tar(bytes(data), piece=1 << 16)
        except CallerError:
            refused += 1
    assert refused > 500
