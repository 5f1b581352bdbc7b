"""The service over a real store and no sandboxes: deleting, configuring, forking, stopping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from runner.backends.base import Backend, BackendReport
from runner.conversations.config import ConversationsConfig
from runner.conversations.service import ConversationService
from runner.errors import BackendUnavailable, Conflict, NotFound, QuotaExceeded, Stopping, StoreFailed
from runner.limits.config import LimitsConfig
from runner.model import RunRequest, SandboxLimits
from runner.workspace.base import Store
from runner.workspace.config import WorkspaceConfig
from runner.workspace.owners import Owners
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces
from tests.unit.conversations.pool_lab import until

T = "default"


class NoBackend:
    """Starts nothing."""

    async def survivors(self) -> list[str]:
        return []

    async def sweep(self) -> int:
        return 0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(WorkspaceConfig(tmp_path))
    yield opened
    await opened.close()


@pytest.fixture
async def service(tmp_path: Path, store: Store) -> AsyncIterator[ConversationService]:
    owners = Owners(store, "r")
    await owners.start(exclusive=True)
    made = ConversationService(
        cast(Backend, NoBackend()),
        BackendReport("none", False),
        Workspaces(store, WorkspaceConfig(tmp_path)),
        owners,
        ConversationsConfig(),
        LimitsConfig(SandboxLimits()),
    )
    await made.start()
    yield made
    await made.close()


async def put(service: ConversationService, identifier: str, size: int = 10) -> None:
    workspace = (await service.ensure(T, identifier))[0].workspace
    async with workspace.stage() as staging:
        await staging.write(bytes(size))
        await workspace.put("a", staging)


async def test_two_who_delete_at_once_delete_once_and_spare_what_is_made_next(service: ConversationService) -> None:
    await put(service, "c")
    await asyncio.gather(*(service.purge(T, "c") for _ in range(5)))
    with pytest.raises(NotFound):
        await service.find(T, "c")
    again, created = await service.ensure(T, "c")
    assert (created, dict(again.workspace.files)) == (True, {})


async def test_a_deletion_goes_on_without_its_caller(service: ConversationService) -> None:
    await put(service, "c")
    conversation = await service.find(T, "c")
    async with conversation.held():
        leaving = asyncio.create_task(service.purge(T, "c"))
        while not conversation.closing:
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        with pytest.raises(NotFound):
            await put_held(conversation)
    await service.purge(T, "c")
    assert conversation.workspace.purged
    with pytest.raises(NotFound):
        await service.find(T, "c")


async def put_held(conversation: Any) -> None:
    async with conversation.held():
        pass


async def test_a_deletion_that_the_store_refuses_leaves_a_conversation_that_works(
    service: ConversationService, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(service, "c")
    conversation = await service.find(T, "c")

    async def broken() -> None:
        raise StoreFailed("no")

    with monkeypatch.context() as patch:
        patch.setattr(conversation.workspace, "purge", broken)
        with pytest.raises(StoreFailed):
            await service.purge(T, "c")
    async with (await service.find(T, "c")).held():
        pass
    await service.purge(T, "c")
    with pytest.raises(NotFound):
        await service.find(T, "c")


async def test_uploads_beside_deletions_are_whole_or_refused(service: ConversationService) -> None:
    for _ in range(30):
        await put(service, "c")
        found = await asyncio.gather(
            put(service, "c", 20), service.purge(T, "c"), put(service, "c", 30), return_exceptions=True
        )
        assert {type(error) for error in found} <= {type(None), NotFound}
        try:
            files = (await service.find(T, "c")).workspace.files
        except NotFound:
            continue
        assert {entry.size for entry in files.values()} <= {20, 30}


async def test_a_workspace_is_not_made_smaller_than_it_is(service: ConversationService) -> None:
    await put(service, "c", 3 << 20)
    conversation = await service.find(T, "c")
    with pytest.raises(Conflict) as caught:
        await service.configure(conversation, {"limits": {"workspace_bytes": 2 << 20}})
    assert caught.value.fields == {"used": 3 << 20, "limit": 2 << 20}
    assert conversation.workspace.max_bytes == 512 << 20
    shown = await service.configure(conversation, {"limits": {"workspace_bytes": 4 << 20}})
    assert (shown.limits["workspace_bytes"], conversation.workspace.max_bytes) == (4 << 20, 4 << 20)


async def test_settings_changed_by_several_at_once_all_hold(service: ConversationService) -> None:
    conversation, _ = await service.ensure(T, "c")
    await asyncio.gather(
        service.configure(conversation, {"labels": {"a": "1"}}),
        service.configure(conversation, {"idle_ttl_ms": 5000}),
        service.configure(conversation, {"limits": {"pids": 64}}),
    )
    stored = await conversation.workspace.settings()
    assert stored == {"labels": {"a": "1"}, "idle_ttl_ms": 5000, "limits": {"pids": 64}}


async def test_a_fork_has_the_limits_and_not_the_labels(service: ConversationService) -> None:
    await put(service, "c")
    source = await service.find(T, "c")
    await service.configure(source, {"labels": {"a": "1"}, "limits": {"pids": 64}, "idle_ttl_ms": 5000})
    made = await service.describe(await service.fork(T, "c", None, "d"))
    assert (made.id, dict(made.labels), made.limits["pids"], made.idle_ttl_ms, made.files) == ("d", {}, 64, 5000, 1)


async def test_a_fork_that_its_limits_do_not_allow_is_not_made(service: ConversationService) -> None:
    await put(service, "c", 3 << 20)
    source = await service.fork(T, "c", None, "large")
    await source.workspace.delete("a")
    await service.configure(source, {"limits": {"workspace_bytes": 1 << 20}})
    with pytest.raises(QuotaExceeded, match=r"limits\.workspace_bytes"):
        await service.fork(T, "large", 0, "d")
    with pytest.raises(NotFound):
        await service.find(T, "d")


async def test_without_a_backend_a_run_says_what_is_missing(service: ConversationService) -> None:
    service.report = BackendReport("none", False, detail="install the package bubblewrap")
    with pytest.raises(BackendUnavailable, match="install the package"):
        await service.begin(T, "c", RunRequest("1"))


async def test_a_service_that_stops_takes_nothing_new(service: ConversationService) -> None:
    conversation, _ = await service.ensure(T, "c")
    await service.drain()
    assert service.stopping
    with pytest.raises(Stopping) as caught:
        await service.begin(T, "c", RunRequest("1"))
    assert int(str(caught.value.fields["retry_after_ms"])) >= 1000
    with pytest.raises(Stopping):
        await put_held(conversation)
    await put(service, "c")  # files are taken until the last moment


async def test_another_image_is_shown_and_told_to_the_pool(
    service: ConversationService, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(service._pool, "use", told.append)
    monkeypatch.setattr(service._pool, "start", lambda: None)
    weaker = replace(service.report, available=True, image="name@2", runtime="runc")
    for report in (weaker, replace(weaker, runtime="runsc"), replace(weaker, runtime="runsc", image="name@3")):
        assert await service.renew(report)
        assert service.report == report
    assert len(set(told)) == 3  # spares of another image are replaced, and so are those behind another wall


async def test_while_nothing_can_be_started_spares_are_kept_and_who_waits_is_sent_away(
    service: ConversationService, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(service._pool, "use", told.append)
    conversation, _ = await service.ensure(T, "c")
    monkeypatch.setattr(service._pool, "check", lambda: None)
    monkeypatch.setattr(service.admission, "_max_live", 0)
    waiting = asyncio.create_task(service.admission.acquire(conversation, time.monotonic() + 60))
    await until(lambda: service.admission.queued)
    monkeypatch.undo()
    assert await service.renew(replace(service.report, image="as configured", detail="the engine has stopped"))
    with pytest.raises(BackendUnavailable, match="has stopped") as caught:
        await waiting
    assert caught.value.fields["retry_after_ms"]
    with pytest.raises(BackendUnavailable, match="has stopped"):
        await service.admission.acquire(conversation, time.monotonic() + 60)
    assert told == []
