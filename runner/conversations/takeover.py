"""The first thing that is done with an engine: what an earlier start left there is taken over, or removed.

Until then nobody can say whether a run that has no outcome goes on in one of those sandboxes.
"""

from __future__ import annotations

from typing import Final

from runner.backends.base import Backend
from runner.conversations.adoption import Adoption
from runner.conversations.assignments import Assignments
from runner.conversations.pool import COME_AGAIN_MS
from runner.conversations.records import Stored, outcome
from runner.errors import BackendUnavailable
from runner.telemetry.logs import logger
from runner.workspace.history import Workspace
from runner.workspace.owners import Owners

NOT_LISTED: Final = "the sandboxes of the last start could not be listed yet; send the request again"
log = logger("adoption")


class Takeover:
    """Once it has been done it stays so."""

    def __init__(self, backend: Backend, assignments: Assignments, owners: Owners, adoption: Adoption) -> None:
        self._backend, self._assignments, self._owners = backend, assignments, owners
        self._adoption = adoption
        self._done = False

    async def attempt(self) -> bool:
        """Whether it is done. Where it is not, everything is as it was, and it can be tried again."""
        if not self._done and await self._adoption.all():
            self._done = True
            left = await self._backend.sweep()
            if left:
                log.warning("removed sandboxes of a dead runner", count=left)
        return self._done

    async def outcome(self, workspace: Workspace, execution_id: str) -> Stored:
        """How a run that is not known here ended.

        Raises what ``records.outcome`` raises, and BackendUnavailable where it may go on, which is not known yet.
        """
        if not self._done and await self._may_go_on(workspace, execution_id):
            raise BackendUnavailable(
                "whether this execution goes on is known once sandboxes can be started; ask again",
                retry_after_ms=COME_AGAIN_MS,
            )
        return await outcome(workspace, self._owners, execution_id)

    async def _may_go_on(self, workspace: Workspace, execution_id: str) -> bool:
        record = await workspace.read_execution(execution_id)
        if record is not None and record.end is not None:
            return False
        mine = (workspace.tenant, workspace.id, workspace.incarnation)
        noted = await self._assignments.all()
        return any((one.tenant, one.conversation, one.incarnation) == mine for one in noted)
