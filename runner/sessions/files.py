"""Files of a session: written, read, listed, and its inputs taken away."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from runner.conversations.conversation import Conversation
from runner.conversations.service import ConversationService
from runner.errors import Conflict, FolioboxError, InvalidPath, NotFound, SessionFault, SessionMisuse, TooLarge
from runner.model import FileEntry
from runner.sessions.homes import GONE
from runner.sessions.paths import followed, resolve
from runner.workspace.base import ByteStream
from runner.workspace.history import Workspace
from runner.workspace.paths import parents

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


@dataclass(frozen=True, slots=True)
class Inputs:
    """Files by their paths in the workspace, and the SHA-256 of each."""

    files: Mapping[str, bytes]
    hashes: Mapping[str, str]

    @property
    def sha256(self) -> str:
        """Of all paths and contents."""
        return hashlib.sha256(json.dumps(sorted(self.hashes.items())).encode()).hexdigest()


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
                raise SessionMisuse(f"write failed: {name} is a folder")
            self._conversations.check_upload(len(content))
            async with self._conversations.stage(self.max_bytes) as staging:
                for start in range(0, len(content), _PIECE):  # hashed and written while it is in the cache
                    await staging.write(content[start : start + _PIECE])
                return await workspace.put(name, staging, beyond=beyond)
        except Conflict as error:
            what = "write" if "is a folder" in error.detail else "mkdir"
            raise SessionMisuse(f"{what} failed: {error.detail}") from None
        except NotFound:
            raise NotFound(GONE) from None
        except SessionFault:
            raise
        except FolioboxError as error:
            raise _fault("write", error) from None

    async def inputs(self, given: Sequence[tuple[str, bytes]] | None) -> Inputs | None:
        """What a run is to find, checked before anything is touched. Raises InvalidPath."""
        if given is None:
            return None
        files = {resolve(path, {}): content for path, content in given}
        for name in files:
            if not name.startswith(_BELOW_INPUTS):
                raise InvalidPath("inputs lie below uploads or skills")
            if any(parent in files for parent in parents(name)):
                raise InvalidPath("an input cannot lie below another one")
        hashes = await asyncio.to_thread(
            lambda: {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        )
        return Inputs(files, hashes)

    async def stage(self, conversation: Conversation, inputs: Inputs) -> None:
        """Make ``uploads`` and ``skills`` hold exactly these. Raises as ``put``."""
        links = conversation.workspace.links
        strayed = any(followed(folder, links) != folder for folder in INPUTS)
        if strayed or inputs.files.keys() != self._inputs(conversation):
            await self.reset_inputs(conversation.workspace)
        for name, content in inputs.files.items():
            have = conversation.workspace.files.get(name)
            if have is None or have.sha256 != inputs.hashes[name]:
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
            raise _fault("read", error) from None

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
                raise _fault("reset inputs", error) from None


def _fault(what: str, error: FolioboxError) -> SessionFault:
    kind = SessionFault if error.blame == "service" else SessionMisuse
    return kind(f"{what} failed: {error.detail}", cause=error.cause)
