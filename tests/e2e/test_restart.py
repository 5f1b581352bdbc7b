"""A start with a thousand conversations in the store: ready at once, and every one as it was."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from runner.model import FileChange, FileEntry
from runner.workspace.config import WorkspaceConfig
from runner.workspace.manifest import Cause
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces
from tests.support.runner import KEPT, Runner

MANY = 1000
LIMIT_S = 3.0
_AT_ONCE = 32


async def _fill(data: Path) -> None:
    """Conversations with labels, each with a file in a version and another in its draft."""
    config = WorkspaceConfig(data)
    store = await open_store(config)
    workspaces = Workspaces(store, config)
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            workspace, _ = await workspaces.create("default", f"c-{number:04d}")
            async with workspace.stage() as staging:
                await staging.write(_content(number, "kept"))
                sha256, size, blob = await workspace.adopt_blob(staging)
            entry = FileEntry("outputs/kept.txt", size, sha256, blob)
            change = FileChange(entry.path, "created", entry)
            await workspace.commit([change], synced_seq=workspace.draft_seq, cause=Cause("run", execution_id="0" * 32))
            async with workspace.stage() as staging:
                await staging.write(_content(number, "draft"))
                await workspace.put("uploads/draft.txt", staging)
            await workspace.set_settings({"labels": {"tenth": str(number % 10)}})

    await asyncio.gather(*map(one, range(MANY)))
    await store.close()


def _content(number: int, kind: str) -> bytes:
    return f"{kind} {number}".encode()


def _listed(http: httpx.Client, **query: str) -> list[dict[str, object]]:
    """All conversations, page by page."""
    found: list[dict[str, object]] = []
    params: dict[str, str | int] = {"limit": 1000, **query}
    while True:
        page = http.get("/v1/conversations", params=params).json()
        found += page["conversations"]
        if page["next"] is None:
            return found
        params["after"] = page["next"]


def _expected(number: int) -> dict[str, str]:
    contents = {"outputs/kept.txt": _content(number, "kept"), "uploads/draft.txt": _content(number, "draft")}
    return {path: hashlib.sha256(content).hexdigest() for path, content in contents.items()}


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[Runner]:
    """A service that has not been started yet."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    service = Runner(tmp_path, {**kept, "SANDBOX_POOL_SIZE": "0"})
    yield service
    service.stop()


def test_a_thousand_idle_conversations_are_there_in_three_seconds(tmp_path: Path, restarted: Runner) -> None:
    asyncio.run(_fill(tmp_path))
    took_s: list[float] = []
    while not took_s or (min(took_s) > LIMIT_S and len(took_s) < 3):  # once in three, whatever else the machine does
        if took_s:
            restarted.kill()
        began = time.monotonic()
        restarted.start()  # returns when /livez answers
        with restarted.client() as http:
            assert http.get("/readyz").status_code == 200
            ready_s = time.monotonic() - began
            listed = _listed(http)
            took_s.append(time.monotonic() - began)
        print(f"ready after {ready_s:.2f} s, {len(listed)} listed after {took_s[-1]:.2f} s")
        assert [item["id"] for item in listed] == [f"c-{number:04d}" for number in range(MANY)]
    assert min(took_s) <= LIMIT_S
    with restarted.client() as http:
        some = _listed(http, label="tenth=7")
        assert [item["id"] for item in some] == [f"c-{number:04d}" for number in range(7, MANY, 10)]
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda number: _hashes(http, number), range(MANY)))
        assert found == [_expected(number) for number in range(MANY)]


def _hashes(http: httpx.Client, number: int) -> dict[str, str]:
    files = http.get(f"/v1/conversations/c-{number:04d}/files").json()["files"]
    return {entry["path"]: entry["sha256"] for entry in files}
