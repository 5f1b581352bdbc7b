"""What is looked at before anything is done: a run that is asked for, limits that a conversation is to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.backends.base import BackendReport
from runner.backends.egress import NETWORK
from runner.conversations.conversation import Conversation
from runner.conversations.settings import ConversationSettings
from runner.errors import Conflict, EgressLost, EgressUnavailable, InvalidRequest
from runner.limits.config import LimitsConfig
from runner.model import RunRequest

_LOOKED_AT_AGAIN_MS = 30_000
_FORBIDDEN_ENV = ("LD_", "PYTHON")


def check_request(request: RunRequest, limits: LimitsConfig) -> None:
    """Raises InvalidRequest for what no sandbox could run."""
    size = len(request.code.encode("utf-8", "surrogatepass"))
    if size > limits.max_code_bytes:
        raise InvalidRequest(
            f"code has {size} bytes, the limit is {limits.max_code_bytes}: put data into a file instead",
            limit=limits.max_code_bytes,
        )
    if "\0" in request.code and request.language == "bash":
        raise InvalidRequest("bash code must not contain NUL characters")
    if request.stdin is not None and len(request.stdin) > limits.max_stdin_bytes:
        raise InvalidRequest(
            f"stdin is longer than {limits.max_stdin_bytes} bytes: put it into a file instead",
            limit=limits.max_stdin_bytes,
        )
    env_size = sum(len(name) + len(value.encode()) for name, value in request.env.items())
    if env_size > limits.max_env_bytes:
        raise InvalidRequest(
            f"env holds {env_size} bytes, the limit is {limits.max_env_bytes}: put data into a file instead",
            limit=limits.max_env_bytes,
        )
    for name, value in request.env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InvalidRequest(f"env: {name!r} is not a usable variable name or value")
        if name.upper().startswith(_FORBIDDEN_ENV):
            raise InvalidRequest(f"env: {name} is refused: LD_* and PYTHON* change how programs are loaded")


def check_room(conversation: Conversation, before: int) -> None:
    """A workspace may not be made smaller than what lies in it: no sandbox could hold its files. Raises Conflict."""
    room, used = conversation.effective.sandbox.workspace_bytes, conversation.workspace.size_bytes
    if room < before and used > room:
        raise Conflict(
            f"the files of the conversation take {used} bytes, and with these limits its workspace would have {room} "
            "(at most five sixteenths of memory_bytes): delete files first, or ask for more",
            used=used,
            limit=room,
        )


def check_settings(report: BackendReport, given: Mapping[str, Any]) -> None:
    """Whether settings can be, before a conversation is made for them.

    Raises InvalidRequest, EgressUnavailable, EgressLost.
    """
    check_network(report, ConversationSettings().changed(given).network)


def check_network(report: BackendReport, wanted: bool | None) -> None:
    """Whether a sandbox with network may be asked for.

    Raises EgressUnavailable where it is known that not, and EgressLost where it was there and may come back.
    """
    if wanted and report.network.lost:
        raise EgressLost(
            f"network: the way out of this deployment's sandboxes is down ({report.egress_detail}); send the call "
            "again later, or with network false",
            retry_after_ms=_LOOKED_AT_AGAIN_MS,
        )
    if wanted and report.egress is False:
        raise EgressUnavailable(
            f"network: this deployment's sandboxes have none ({report.egress_detail}); send the call again with "
            "network false, and do not try to install packages or to fetch anything",
            setting=NETWORK,
        )
