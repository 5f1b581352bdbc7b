"""Files of a session: written, read, listed, and its inputs taken away."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from runner.conversations.conversation import Conversation
from runner.conversations.service import ConversationService
from runner.errors import Conflict, FolioboxError, InvalidPath, NotFound, SessionFault, TooLarge
from runner.model import FileEntry
from runner.sessions.paths import followed, resolve
from runner.workspace.base import ByteStream
from runner.workspace.history import Workspace

INPUTS: Final = ("uploads", "skills")
_BELOW_INPUTS: Final = tuple(f"{folder}/" for folder in INPUTS)
MAX_LISTED: Final = 500
_PIECE: Final = 1 << 20
MAX_LISTING_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 6


@dataclass(frozen=True, slots=True)
class Listing:
    """Files in the order of their paths; ``total`` counts those that are not listed too."""

    files: list[FileEntry]
    total: int


class SessionFiles:
    """What the files of a session are called and where they lie; ``reserve`` bytes are for inputs alone."""

    def __init__(self, conversations: ConversationService, max_bytes: int) -> None:
        self._conversations, self.max_bytes = conversations, max_bytes

    async def put(self, conversation: Conversation, path: str, content: bytes) -> FileEntry:
        """Store a file; durable when this returns. Inputs find room in a workspace that outputs have filled.

        Raises InvalidPath, TooLarge, SessionFault.
        """
        workspace = conversation.workspace
        name = resolve(path, workspace.links)
        if len(content) > self.max_bytes:
            raise TooLarge("file too large")
        beyond = self.max_bytes if name.startswith(_BELOW_INPUTS) else 0
        try:
            if name in (*INPUTS, "outputs", "downloads"):
                raise SessionFault(f"write failed: {name} is a folder")
            self._conversations.check_upload(len(content))
            async with self._conversations.stage(self.max_bytes) as staging:
                for start in range(0, len(content), _PIECE):  # hashed and written while it is in the cache
                    await staging.write(content[start : start + _PIECE])
                return await workspace.put(name, staging, beyond=beyond)
        except Conflict as error:
            what = "write" if "is a folder" in error.detail else "mkdir"
            raise SessionFault(f"{what} failed: {error.detail}") from None
        except (NotFound, SessionFault):
            raise
        except FolioboxError as error:
            raise SessionFault(f"write failed: {error.detail}", cause=error.cause) from None

    async def stage(self, conversation: Conversation, inputs: Sequence[tuple[str, bytes]]) -> None:
        """Make ``uploads`` and ``skills`` hold exactly these. Raises InvalidPath for other places, and as ``put``."""
        links = conversation.workspace.links
        names = [resolve(path, {}) for path, _ in inputs]
        if not all(name.startswith(_BELOW_INPUTS) for name in names):
            raise InvalidPath("inputs lie below uploads or skills")
        if any(followed(folder, links) != folder for folder in INPUTS) or set(names) != self._inputs(conversation):
            await self.reset_inputs(conversation.workspace)
        for name, (_, content) in zip(names, inputs, strict=True):
            have = conversation.workspace.files.get(name)
            if have is None or have.size != len(content) or have.sha256 != hashlib.sha256(content).hexdigest():
                await self.put(conversation, name, content)

    @staticmethod
    def _inputs(conversation: Conversation) -> set[str]:
        return {path for path in conversation.workspace.files if path.startswith(_BELOW_INPUTS)}

    async def open(self, conversation: Conversation, path: str) -> tuple[FileEntry, ByteStream]:
        """A regular file and its bytes. Raises InvalidPath, NotFound, SessionFault."""
        workspace = conversation.workspace
        entry = workspace.files.get(resolve(path, workspace.links))
        if entry is None:
            raise NotFound("file not found")
        try:
            return entry, await workspace.open(entry)
        except FolioboxError as error:
            raise SessionFault(f"read failed: {error.detail}", cause=error.cause) from None

    def list(self, conversation: Conversation, after: str | None, limit: int | None) -> Listing:
        """Regular files; without a page asked for, as many and as deep as the protocol lists."""
        workspace = conversation.workspace
        paged = after is not None or limit is not None
        fits: Callable[[str], bool] = (lambda p: p > (after or "")) if paged else (lambda p: p.count("/") < MAX_DEPTH)
        paths = sorted(path for path in workspace.files if fits(path))
        shown, size = [], 0
        for path in paths[: min(limit or MAX_LISTED, 10_000)]:
            size += len(path.encode()) + 24
            if size > MAX_LISTING_BYTES:
                break
            shown.append(workspace.files[path])
        return Listing(shown, len(paths))

    async def reset_inputs(self, workspace: Workspace) -> None:
        """Empty ``uploads`` and ``skills``, whatever lies there and with whatever rights. Raises SessionFault."""
        for folder in INPUTS:
            try:
                with suppress(NotFound):
                    await workspace.delete(folder, recursive=True)
            except FolioboxError as error:
                raise SessionFault(f"reset inputs failed: {error.detail}", cause=error.cause) from None
