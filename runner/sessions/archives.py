"""Archives of conversations in object storage: restored into a new conversation, saved over what was restored.

The conversation itself is durable here, so an archive is a copy for other runners. It never replaces one that it does
not come from, and what cannot be saved is told and kept.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from runner.conversations.conversation import Conversation
from runner.conversations.service import ConversationService
from runner.errors import BadArchive, Conflict, FolioboxError, QuotaExceeded, SessionFault, SessionMisuse, TooLarge
from runner.objects.block import StorageBlock
from runner.objects.service import ObjectStorage
from runner.sessions.homes import Home, Homes
from runner.telemetry.logs import logger
from runner.workspace.archives.pack import packed
from runner.workspace.archives.restore import staged

_MAX_MEMBERS = 20_000
_FORGOTTEN = "the credentials of its storage are not known any more: end the session with its storage block"
log = logger("sessions")


@dataclass(slots=True)
class Restored:
    """What became of an archive at the start of a session; ``files`` is None where there was none to look for."""

    files: int | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Saved:
    """What became of an archive at the end of a session: ``archived`` is None where none was asked for."""

    archived: bool | None = None
    error: str | None = None


class Archives:
    """Reads and writes them, for homes whose ``changing`` lock the caller holds."""

    def __init__(
        self, objects: ObjectStorage, conversations: ConversationService, homes: Homes, limit_s: float
    ) -> None:
        self._objects, self._conversations, self._homes = objects, conversations, homes
        self._limit_s = limit_s

    def effective(self, block: StorageBlock | None) -> bool:
        """Whether a block names a place."""
        return block is not None and self._objects.effective(block)

    async def restore(self, home: Home, block: StorageBlock) -> Restored:
        """Fill a conversation that there is not yet, or that is empty, from its archive, if there is one.

        Raises SessionFault where that cannot be known: an empty workspace would be taken for the truth.
        """
        done = Restored(files=0)
        try:
            async with AsyncExitStack() as stack, asyncio.timeout(self._limit_s):
                archive = await stack.enter_async_context(self._objects.open_archive(block, home.stem))
                if archive is None:
                    return done
                limit = self._conversations.new_max_bytes
                found = await staged(
                    archive.chunks,
                    stack,
                    lambda: self._conversations.stage(limit),
                    max_members=_MAX_MEMBERS,
                    max_bytes=limit,
                )
                home.stamp, home.restoring = archive.stamp, True
                await self._homes.note(home)  # so that what is broken off here is known to be, and begun again
                if found.files:
                    conversation = await self._conversations.receiving(home.tenant, home.conversation, found.sizes)
                    await conversation.workspace.put_many(
                        list(found.files.items()), modes=found.modes, modified_ns=found.modified_ns
                    )
                done.files = len(found.files)
                done.warnings += found.notes[:20]
        except (BadArchive, Conflict, TooLarge, QuotaExceeded) as error:
            home.stamp = None  # it stays where it is: without its stamp nothing is ever saved over it
            done.warnings.append(f"the stored archive cannot be used and was left as it is: {error.detail}")
            log.warning("an archive cannot be restored", conversation=home.conversation, detail=error.detail)
        except TimeoutError:
            raise SessionFault(f"workspace init failed: the archive was not read within {self._limit_s:g} s") from None
        except FolioboxError as error:
            kind = SessionFault if error.blame == "service" else SessionMisuse
            raise kind(f"workspace init failed: {error.detail}", cause=error.cause) from None
        return done

    async def save(self, home: Home, conversation: Conversation) -> Saved:
        """Store the files of a conversation where its storage is, if they are others than when it was last stored."""
        block, workspace = home.block, conversation.workspace
        state = (workspace.version, workspace.draft_seq)
        if block is None or not self._objects.effective(block):
            if block is None or not block.forgotten:
                return Saved()
            return Saved(True) if home.saved == state else Saved(False, _FORGOTTEN)
        if home.saved == state:
            return Saved(True)
        try:
            async with asyncio.timeout(self._limit_s):
                home.stamp = await self._objects.save_archive(block, home.stem, packed(workspace), home.stamp)
        except (FolioboxError, TimeoutError) as error:
            why = error.detail if isinstance(error, FolioboxError) else f"not done within {self._limit_s:g} s"
            log.warning("a workspace was not archived", conversation=home.conversation, detail=why)
            return Saved(False, why)
        home.saved = state
        return Saved(True)

    async def discard(self, home_stem: str, block: StorageBlock | None) -> Saved:
        """Delete an archive."""
        if block is None or not self._objects.effective(block):
            return Saved(None, _FORGOTTEN) if block is not None and block.forgotten else Saved()
        try:
            await self._objects.delete_archive(block, home_stem)
        except FolioboxError as error:
            log.warning("an archive was not deleted", stem=home_stem, detail=error.detail)
            return Saved(None, error.detail)
        return Saved()
