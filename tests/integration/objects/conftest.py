"""A server of S3 and an ObjectStorage that may use it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from runner.objects.block import StorageBlock
from runner.objects.config import ObjectsConfig
from runner.objects.service import ObjectStorage
from tests.support.objects.server import S3Server, s3_server

Making = Callable[..., ObjectStorage]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither proxies nor credentials of whoever runs the tests."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("AWS_"):
            monkeypatch.delenv(name)


@pytest.fixture
def s3() -> Iterator[S3Server]:
    """A server with an empty bucket."""
    with s3_server() as server:
        yield server


@pytest.fixture
async def making(tmp_path: Path) -> AsyncIterator[Making]:
    """Makes an ObjectStorage from settings; closes them all."""
    (tmp_path / "spool").mkdir()
    made: list[ObjectStorage] = []

    def make(**settings: str) -> ObjectStorage:
        env = {"SANDBOX_S3_MAX_ATTEMPTS": "1", "SANDBOX_S3_READ_TIMEOUT_S": "20", **settings}
        made.append(ObjectStorage(ObjectsConfig.from_env(env), tmp_path / "spool"))
        return made[-1]

    yield make
    for each in made:
        await each.close()


@pytest.fixture
def storage(s3: S3Server, making: Making) -> ObjectStorage:
    """One that may use the server."""
    return making(SANDBOX_STORAGE_HOSTS=s3.host)


@pytest.fixture
def block(s3: S3Server) -> StorageBlock:
    """The block of the server."""
    return StorageBlock.parse(s3.block())
