"""Many uploads that wait for one commit: they hold no memory and no open file, and become objects or nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from runner.errors import StoreFailed
from runner.workspace.local import LocalStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[LocalStore]:
    made = LocalStore(tmp_path)
    await made.start()
    yield made
    await made.close()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("size", [0, 10, 100_000, 600_000])
async def test_parked_uploads_become_objects(store: LocalStore, tmp_path: Path, size: int) -> None:
    stagings = [store.stage(1 << 20) for _ in range(50)]
    before = open_files()
    for number, staging in enumerate(stagings):
        await staging.write(bytes([number]) * size)
        await staging.park()
        await staging.park()
    assert open_files() == before
    for number, staging in enumerate(stagings):
        assert (await staging.finish()).size == size
        await staging.commit(f"x/{number}")
    assert open_files() == before
    for number in range(50):
        assert await store.read(f"x/{number}") == bytes([number]) * size
    assert os.listdir(tmp_path / "store" / "staging") == []


async def test_a_parked_upload_that_is_given_up_leaves_nothing(store: LocalStore, tmp_path: Path) -> None:
    async with store.stage(1 << 20) as staging:
        await staging.write(b"x" * 1000)
        await staging.park()
        assert len(os.listdir(tmp_path / "store" / "staging")) == 1
    assert os.listdir(tmp_path / "store" / "staging") == []
    with pytest.raises(StoreFailed):
        await staging.commit("x/1")
    with pytest.raises(StoreFailed):
        await staging.write(b"y")
