"""When bytes and names of the local store become durable, and what a failing disk looks like."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from runner.errors import StoreFailed
from runner.workspace import disk, disk_writer, local_streams
from runner.workspace.base import CHUNK_BYTES, KeyExists
from tests.unit.workspace.workspace_lab import lab, run


class Tracer:
    """Stands in for ``os`` in the store's modules and writes down what makes names and bytes durable."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._open: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: str, *rest: Any) -> int:
        fd = os.open(path, *rest)
        self._open[fd] = path
        return fd

    def fsync(self, fd: int) -> None:
        os.fsync(fd)
        self.calls.append(("fsync", self._open[fd]))

    def write(self, fd: int, data: Any) -> int:
        self.calls.append(("write", self._open[fd]))
        return os.write(fd, data)

    def link(self, source: str, target: str, **options: Any) -> None:
        os.link(source, target, **options)
        self.calls.append(("link", target))

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)
        self.calls.append(("mkdir", path))

    def unlink(self, path: str) -> None:
        os.unlink(path)
        self.calls.append(("unlink", path))


@pytest.mark.parametrize("size", [10, CHUNK_BYTES + 1])
def test_bytes_are_durable_before_their_name_and_names_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    async def scenario() -> list[tuple[str, str]]:
        async with lab(tmp_path) as at:
            tracer = Tracer()
            monkeypatch.setattr(disk, "os", tracer)
            monkeypatch.setattr(disk_writer, "os", tracer)
            monkeypatch.setattr(local_streams, "os", tracer)
            async with at.store.stage(size) as staging:
                await staging.write(bytes(size))
                await staging.commit("t/new/b/blob")
            return list(tracer.calls)

    calls = run(scenario())
    top = str(tmp_path / "store" / "objects")
    staged = next(path for kind, path in calls if kind == "write")
    link = calls.index(("link", f"{top}/t/new/b/blob"))
    last_write = max(index for index, call in enumerate(calls) if call[0] == "write")
    assert last_write < calls.index(("fsync", staged)) < link
    for folder in ("t", "t/new", "t/new/b"):
        made = calls.index(("mkdir", f"{top}/{folder}"))
        assert made < calls.index(("fsync", os.path.dirname(f"{top}/{folder}")), made) < link
    synced = calls.index(("fsync", f"{top}/t/new/b"), link)
    assert link < synced
    if size > CHUNK_BYTES:  # a small one has no name before
        assert synced < calls.index(("unlink", staged))


def test_a_key_that_is_there_is_durable_before_we_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            await at.store.create("t/x", b"")
            tracer = Tracer()
            monkeypatch.setattr(disk, "os", tracer)
            monkeypatch.setattr(disk_writer, "os", tracer)
            with pytest.raises(KeyExists):
                await at.store.create("t/x", b"")
            assert ("fsync", str(at.files / "t")) in tracer.calls

    run(scenario())


@pytest.mark.parametrize("call", ["open", "write", "fsync", "link", "mkdir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.EACCES])
def test_every_failure_comes_through_the_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            broken = SimpleNamespace(**{name: getattr(os, name) for name in dir(os)})
            setattr(broken, call, fail)
            with monkeypatch.context() as patch:
                patch.setattr(disk, "os", broken)
                patch.setattr(disk_writer, "os", broken)
                attempts: list[Callable[[], Any]] = [
                    lambda: at.store.create("t/new/x", b"data"),
                    lambda: stage_and_commit(at.store, "t/new/y"),
                ]
                for attempt in attempts:
                    with pytest.raises(StoreFailed) as caught:
                        await attempt()
                    assert not isinstance(caught.value, KeyExists)
                    assert str(tmp_path) not in caught.value.detail
                    if number in (errno.ENOSPC, errno.EDQUOT):
                        assert "full" in caught.value.detail
            assert at.staged() == []
            assert not await at.store.exists("t/new/x")
            await at.store.create("t/new/x", b"data")

    async def stage_and_commit(store: Any, key: str) -> None:
        async with store.stage(1 << 30) as staging:
            await staging.write(bytes(CHUNK_BYTES * 2))
            await staging.commit(key)

    run(scenario())


def test_a_full_disk(tmp_path: Path) -> None:
    """On a real full file system, where one can be mounted."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a tmpfs cannot be mounted here")

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            await at.store.create("t/x", b"kept")
            with pytest.raises(StoreFailed, match="full"):
                async with at.store.stage(1 << 30) as staging:
                    for _ in range(64):
                        await staging.write(bytes(64 << 10))
            assert at.staged() == []
            assert await at.store.read("t/x") == b"kept"
            await at.store.create("t/y", bytes(1000))

    try:
        run(scenario())
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
