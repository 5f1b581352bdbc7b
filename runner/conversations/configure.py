"""Changes of a conversation's settings: all of one request, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from runner.backends.base import BackendReport
from runner.conversations.checks import check_network, check_room
from runner.conversations.conversation import Conversation


async def change(
    conversation: Conversation, changes: Mapping[str, Any], report: BackendReport, idle_cap_ms: int | None
) -> None:
    """Change of ``labels``, ``idle_ttl_ms``, ``limits`` and ``network`` those that are given, each as a whole; None
    puts the deployment's value back. What is above the deployment's is lowered to it, an idle time only to
    ``idle_cap_ms`` where a surface gives that.

    Raises InvalidRequest, EgressUnavailable, EgressLost, and Conflict when the files there are take more than the new
    limit.
    """
    async with conversation.configuring:
        before = conversation.settings
        settings = before.changed(changes)
        if idle_cap_ms is not None:
            settings = replace(settings, idle_cap_ms=idle_cap_ms)
        check_network(report, settings.network and not before.network)
        if settings != before:
            room_before = conversation.effective.sandbox.workspace_bytes
            conversation.apply(settings)
            try:
                check_room(conversation, room_before)
                await conversation.workspace.set_settings(settings.json())
            except BaseException:
                conversation.apply(before)
                raise
