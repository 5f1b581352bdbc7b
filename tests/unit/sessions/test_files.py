"""Files of a session in a real store: who is to blame for what cannot be done, and inputs that fit together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from runner.conversations.conversation import Conversation
from runner.conversations.service import ConversationService
from runner.errors import InvalidPath, NotFound, SessionFault
from runner.sessions.files import SessionFiles
from runner.sessions.homes import GONE
from runner.workspace.config import WorkspaceConfig
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces


@pytest.fixture
async def workspaces(tmp_path: Path) -> AsyncIterator[Workspaces]:
    config = WorkspaceConfig(tmp_path)
    store = await open_store(config)
    yield Workspaces(store, config)
    await store.close()


def files(workspaces: Workspaces) -> SessionFiles:
    service = SimpleNamespace(stage=workspaces.stage, check_upload=lambda size: None)
    return SessionFiles(cast(ConversationService, service), 1000)


async def test_a_write_to_what_is_deleted_meanwhile_finds_no_session(workspaces: Workspaces) -> None:
    """In the words of the protocol: gateways look for them to begin another session."""
    workspace, _ = await workspaces.create("t", "chat")
    conversation = cast(Conversation, SimpleNamespace(workspace=workspace))
    assert (await files(workspaces).put(conversation, "a", b"1")).size == 1  # the control
    await workspace.purge()
    with pytest.raises(NotFound, match=f"^{GONE}$"):
        await files(workspaces).put(conversation, "b", b"1")


async def test_what_the_caller_did_is_not_logged_as_a_fault_of_the_service(workspaces: Workspaces) -> None:
    """The status is the protocol's, whoever is to blame."""
    workspace, _ = await workspaces.create("t", "chat")
    conversation = cast(Conversation, SimpleNamespace(workspace=workspace))
    await files(workspaces).put(conversation, "a", b"1")
    for path in ("outputs", "a/b"):
        with pytest.raises(SessionFault) as caught:
            await files(workspaces).put(conversation, path, b"1")
        assert caught.value.blame == "caller"
    await workspace.delete("a")


async def test_inputs_have_one_digest_whatever_their_order(workspaces: Workspaces) -> None:
    """Of paths and contents; those that cannot lie beside each other have none."""
    made = files(workspaces)

    async def digest(*inputs: tuple[str, bytes]) -> str:
        found = await made.inputs(inputs)
        assert found is not None
        return found.sha256

    one, two = ("uploads/a", b"1"), ("skills/b", b"2")
    assert await digest(one, two) == await digest(two, ("/workspace/uploads/a", b"1"))
    assert len({await digest(one, two), await digest(one), await digest(), await digest(("uploads/a", b"2"))}) == 4
    assert await made.inputs(None) is None
    for bad in ((("outputs/a", b""),), (one, ("uploads/a/b", b"")), (("uploads/a/b/c", b""), one)):
        with pytest.raises(InvalidPath):
            await made.inputs(bad)
