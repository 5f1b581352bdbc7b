"""A disk without room: a service starts on it, serves what is there, says so, and goes on when there is room."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ConfigurationError, StoreFull
from runner.workspace import disk, disk_writer
from tests.unit.workspace.workspace_lab import Lab, contents, cut, lab, put, run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def fill(folder: Path) -> Path:
    """Take all room that is left."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with pytest.raises(OSError, match="No space"):
                while True:
                    file.write(bytes(size))
    return filler


def test_a_disk_that_fills_up_and_is_freed(small_disk: Path) -> None:
    async def refused(at: Lab, size: int) -> None:
        space = await at.space()
        before = dict(space.files)
        with pytest.raises(StoreFull, match="full"):
            await put(space, "more", bytes(size))
        with pytest.raises(StoreFull):
            await space.adopt_contents([os.urandom(5000) for _ in range(50)])
        assert at.staged() == []
        assert space.files == before == (await at.again()).files
        assert await contents(space) == {"up": b"kept", "made": b"by a run"}

    async def scenario() -> None:
        async with lab(small_disk) as at:
            space = await at.space()
            await put(space, "up", b"kept")
            await cut(space, "made", b"by a run")
            filler = fill(small_disk)
            for size in (10, 100_000, 3 << 20):
                await refused(at, size)
            filler.unlink()
            await put(space, "more", b"there is room again")
            await space.delete("more")
        filler = fill(small_disk)
        async with lab(small_disk) as at:
            assert at.store.full  # type: ignore[attr-defined]
            await refused(at, 10)
            filler.unlink()
            await put(await at.space(), "more", b"there is room again")
        async with lab(small_disk) as at:
            assert not at.store.full  # type: ignore[attr-defined]
            assert (await contents(await at.space()))["more"] == b"there is room again"

    run(scenario())


def test_only_a_full_disk_is_let_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        number = errno.ENOSPC

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def fsync(self, fd: int) -> None:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(self.number, os.strerror(self.number))
            os.fsync(fd)

    broken = Broken()
    monkeypatch.setattr(disk, "os", broken)
    monkeypatch.setattr(disk_writer, "os", broken)

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            assert at.store.full  # type: ignore[attr-defined]
        broken.number = errno.EIO
        with pytest.raises(ConfigurationError, match="cannot hold the store"):
            async with lab(tmp_path):
                pass

    run(scenario())
