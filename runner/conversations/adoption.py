"""Takes over, at a start, the sandboxes that an earlier start of the service gave to conversations.

What runs in them goes on, under its id; what has ended and was never acknowledged is stored; what was begun in
these conversations and is nowhere now is lost, and its record says so. A sandbox that does
not answer in time, or whose conversation is gone, is left to the sweep that follows, and its note is forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from runner.backends.base import Backend
from runner.conversations.admission import Admission
from runner.conversations.assignments import Assignment, Assignments
from runner.conversations.conversation import Conversation
from runner.conversations.marks import Mark
from runner.conversations.records import outcome, stored
from runner.conversations.resumed import FoundRun
from runner.conversations.runs import Runs
from runner.errors import FolioboxError, NotFound, ProtocolError, SandboxLost
from runner.interpreter.client import SandboxClient
from runner.model import InterpreterState
from runner.telemetry.logs import logger
from runner.workspace.owners import Owners

_LIST_S: Final = 10.0
_EACH_S: Final = 10.0
_END_S: Final = 5.0
_AT_ONCE: Final = 32
log = logger("adoption")


class Adoption:
    """Use before anything is asked of what it may find: ``await Adoption(…).all()``."""

    def __init__(
        self,
        backend: Backend,
        assignments: Assignments,
        find: Callable[[str, str], Awaitable[Conversation]],
        runs: Runs,
        admission: Admission,
        owners: Owners,
    ) -> None:
        self._backend, self._assignments, self._find = backend, assignments, find
        self._runs, self._admission, self._owners = runs, admission, owners
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def all(self) -> bool:
        """Take over what can be; False where nobody can say what there is, so that it is to be tried again.

        Raises nothing; takes 10 s for every 32 sandboxes that do not answer.
        """
        noted = await self._assignments.all()
        try:
            async with asyncio.timeout(_LIST_S):
                alive = set(await self._backend.survivors())
        except (TimeoutError, FolioboxError) as error:
            log.warning("the sandboxes of the last start could not be listed", cause=repr(error))
            return False  # what is not known to be dead keeps its note, and runs on
        if not noted:
            return True
        newest: dict[tuple[str, str], Assignment] = {}
        for one in noted:
            if one.sandbox_id in alive and one.current:
                newest.setdefault((one.tenant, one.conversation), one)
        wanted = list(newest.values())
        taken = await asyncio.gather(*map(self._one, wanted))
        kept = {one.sandbox_id for one, conversation in zip(wanted, taken, strict=True) if conversation is not None}
        log.info("took over sandboxes", count=len(kept), of=len(alive), runs=self._runs.active())
        for one in noted:
            if one.sandbox_id not in kept:
                await self._assignments.forget(one.sandbox_id)
        await asyncio.gather(*map(self._settle, {(one.tenant, one.conversation) for one in noted}))
        for conversation in reversed(taken):  # those that were given out first
            if conversation is not None and self._admission.overfull:
                await conversation.evict()
        return True

    async def _one(self, noted: Assignment) -> Conversation | None:
        """The conversation that has the sandbox again, if one has."""
        client: SandboxClient | None = None
        try:
            async with self._slots, asyncio.timeout(_EACH_S):
                conversation = await self._find(noted.tenant, noted.conversation)
                if conversation.workspace.incarnation != noted.incarnation:
                    return None
                client = SandboxClient(await self._backend.attach(noted.sandbox_id))
                await client.attach(_EACH_S, padding=True)
                await self._take(conversation, client, noted)
            return conversation
        except NotFound:  # the conversation was deleted, or never had such files
            why = "nothing fits it"
        except (TimeoutError, FolioboxError) as error:
            why = getattr(error, "cause", None) or repr(error)
        except Exception as error:  # one that cannot be taken over must not keep the service from starting
            log.exception("could not take over a sandbox", conversation=noted.conversation)
            why = repr(error)
        log.warning("a sandbox was not taken over", conversation=noted.conversation, cause=why)
        if client is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(client.destroy(), _END_S)
        return None

    async def _take(self, conversation: Conversation, client: SandboxClient, noted: Assignment) -> None:
        """Put it into its conversation, and see to the run that it has.

        Raises ProtocolError, NotFound for a run with files that are not kept, SandboxLost for one of no more use.
        """
        welcome = client.stream.welcome
        mark = Mark.read(welcome.get("mark"))
        run = await FoundRun.read(conversation.workspace, welcome, mark)
        if mark is not None and welcome.get("touched") is not False:
            mark = replace(mark, version=-1)  # the host died while it changed files
        if run is not None and mark is not None and run.end is not None:
            mark = _after(mark, run, stored(run.end).result.interpreter)
        elif run is not None and (mark is None or mark.version < 0):
            raise ProtocolError("the sandbox misbehaved and was ended", cause="a run without files")
        try:
            await conversation.take_over(client, noted.limits, mark, network=noted.network)
        except NotFound:
            if run is not None or mark is None:
                raise
            await conversation.take_over(client, noted.limits, replace(mark, version=-1), network=noted.network)
        if run is not None and run.end is None:
            await self._go_on(conversation, run)
        elif run is not None:
            client.acknowledge(run.mark.id, conversation.mark())

    async def _settle(self, key: tuple[str, str]) -> None:
        """Give an outcome to what was begun in a conversation and is nowhere now: it is lost."""
        try:
            async with self._slots, asyncio.timeout(_EACH_S):
                workspace = (await self._find(*key)).workspace
                for execution_id in await workspace.unended():
                    if self._runs.find(workspace, execution_id) is None:
                        await outcome(workspace, self._owners, execution_id)
        except NotFound:
            return  # it was deleted
        except (TimeoutError, FolioboxError) as error:  # whoever asks for such a run later makes it lost
            log.warning("runs were not settled", conversation=key[1], cause=getattr(error, "cause", None))

    async def _go_on(self, conversation: Conversation, run: FoundRun) -> None:
        log.info("a run goes on", execution=run.mark.id, conversation=conversation.workspace.id, done=run.done)
        self._runs.start(
            conversation.workspace,
            run.mark.id,
            None,
            lambda running: conversation.resume(running, run),
            gone=run.events,
        )
        await asyncio.sleep(0)  # it has the conversation's turn now


def _after(mark: Mark, run: FoundRun, interpreter: InterpreterState) -> Mark:
    """What is in a sandbox whose last run has its end in the store: nobody has noted which files.

    Raises SandboxLost where that run still goes on, or was said to have cost the variables.
    """
    if not run.done or interpreter is InterpreterState.LOST:
        raise SandboxLost("the sandbox is of no more use", cause=f"run {run.mark.id} is over")
    if run.mark.fresh or run.mark.language == "bash":
        return replace(mark, version=-1)
    return replace(mark, version=-1, variables=True, reason=None)
