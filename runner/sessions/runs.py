"""Runs of a session: one at a time in each, only so many in all, and none for a caller who has left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from runner.conversations.conversation import Conversation
from runner.conversations.result import RunResult
from runner.conversations.runs import Running
from runner.conversations.service import ConversationService
from runner.errors import Busy, CapacityReached, InvalidRequest, NotFound, QueueFull, TooLarge
from runner.model import Language, RunLimits, RunRequest
from runner.sessions.artifacts import OUTPUTS, Collected, collect, told
from runner.sessions.config import SessionsConfig
from runner.sessions.files import SessionFiles
from runner.sessions.homes import GONE, Home
from runner.sessions.paths import followed
from runner.sessions.refusals import busy, busy_again, execs_full, execs_full_again
from runner.sessions.slots import Slots, turn

MIN_TIMEOUT_MS: Final = 1000
_ELSEWHERE: Final = "outputs had become a link out of the workspace; it is a folder again"


@dataclass(frozen=True, slots=True)
class Asked:
    """A run as it is asked for. Only ``code`` and ``timeout_ms`` are of the protocol.

    ``inputs``: what ``uploads`` and ``skills`` are to hold for this run, put there in its turn.
    """

    code: str
    timeout_ms: int | None = None
    language: Language = "python"
    fresh: bool | None = None
    stdin: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    inputs: Sequence[tuple[str, bytes]] | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """A run that has ended; ``timeout_ms`` is the limit that it had, ``notes`` are for the end of ``stderr``."""

    result: RunResult
    collected: Collected
    timeout_ms: int
    notes: tuple[str, ...]


def check_there(conversation: Conversation) -> None:
    """Whether a conversation is still there when its turn has come. Raises NotFound."""
    if conversation.workspace.purged:
        raise NotFound(GONE)


class SessionRuns:
    """Begins runs and waits for them. A place among those that run is given back before files are collected."""

    def __init__(self, conversations: ConversationService, files: SessionFiles, config: SessionsConfig) -> None:
        self._conversations, self._files, self._config = conversations, files, config
        self._places = Slots(config.execs)
        self._ending: set[asyncio.Task[object]] = set()

    async def run(self, home: Home, conversation: Conversation, asked: Asked) -> Done:
        """Run code and collect what it made. A caller who is cancelled while it waits has run nothing, later the run
        is interrupted. All waiting together lasts as long as the setting says.

        Raises TooLarge, InvalidRequest, Busy, QueueFull, NotFound.
        """
        asked_at, inputs = time.monotonic(), await self._files.inputs(asked.inputs)
        request = self._request(asked, "" if inputs is None else inputs.sha256)
        deadline = asyncio.get_running_loop().time() + self._config.queue_s
        async with turn(home.turns, deadline, home.busy), self._places.taken(deadline, execs_full):
            check_there(conversation)
            home.refused, note = False, ""
            try:
                running = asked.key and await self._conversations.begun(conversation, request, asked.key)
                if not running:  # else nothing is touched
                    if inputs is not None:
                        await self._files.stage(conversation, inputs)
                    note = await self._mend_outputs(conversation)
                    running = await self._conversations.begin(
                        home.tenant, home.conversation, request, key=asked.key, announced=False, asked_at=asked_at
                    )
                result = await self._ended(conversation, running)
            except Busy as error:
                home.refused = True
                raise busy_again(error) from None
            except (QueueFull, CapacityReached) as error:
                raise execs_full_again(error) from None
            except NotFound:
                raise NotFound(GONE) from None
        collected = collect(result.files, conversation.workspace.links, self._config.caps)
        notes = (note, told(collected.skipped, self._config.caps))
        return Done(result, collected, request.timeout_ms, tuple(filter(None, notes)))

    def _request(self, asked: Asked, inputs: str) -> RunRequest:
        config = self._config
        if len(asked.code) > config.code_bytes:
            raise InvalidRequest(f"code: at most {config.code_bytes} characters")
        if len(asked.code.encode("utf-8", "surrogatepass")) > config.code_bytes:
            raise TooLarge("code too large")
        timeout_ms = max(MIN_TIMEOUT_MS, min(asked.timeout_ms or config.timeout_ms, config.timeout_cap_ms))
        fresh = config.fresh if asked.fresh is None else asked.fresh
        return RunRequest(
            code=asked.code,
            language=asked.language,
            timeout_ms=min(timeout_ms, self._conversations.limits.timeout_cap_ms),
            fresh=fresh and asked.language == "python",
            script=fresh and asked.language == "python",
            stdin=None if asked.stdin is None else asked.stdin.encode("utf-8", "surrogatepass"),
            env=asked.env,
            limits=RunLimits(output_bytes=config.output_bytes, unbounded=True),
            inputs=inputs,
        )

    async def _ended(self, conversation: Conversation, running: Running) -> RunResult:
        """The result. A caller who leaves ends the run."""
        try:
            return await running.result()
        except asyncio.CancelledError:
            if self._config.interrupt_on_disconnect:
                self._end_later(conversation, running)
            raise

    async def take_over(self, home: Home, conversation: Conversation) -> None:
        """End what runs where a caller was told that the session is busy: it comes back with another session, and
        nobody waits for the old one. What waits for its turn in the old one is sent away.
        """
        if home.refused and home.turns.locked():
            home.turns.refuse(lambda: busy(1))
            await conversation.interrupt(None)

    def _end_later(self, conversation: Conversation, running: Running) -> None:
        task: asyncio.Task[object] = asyncio.create_task(conversation.interrupt(running.execution_id))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _mend_outputs(self, conversation: Conversation) -> str:
        """Make ``outputs`` a folder again where code has left a link out of the workspace, or a file, in its place."""
        workspace = conversation.workspace
        target = followed(OUTPUTS, workspace.links)
        if target is not None and OUTPUTS not in workspace.files:
            return ""
        await workspace.delete(OUTPUTS)
        return _ELSEWHERE if target is None else "outputs had become a file; it is a folder again"
