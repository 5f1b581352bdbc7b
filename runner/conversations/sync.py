"""Brings a sandbox's files up to the store's state, and brings back what a run changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple, TypeVar

from runner.errors import QuotaExceeded, TooLarge
from runner.interpreter.client import (
    FETCH_BYTES,
    FETCH_FILES,
    INLINE,
    ChangedFile,
    Outgoing,
    RunEnd,
    SandboxClient,
)
from runner.model import FileChange, FileEntry, RunLimits
from runner.workspace.aside import aside
from runner.workspace.history import CommitResult, Workspace
from runner.workspace.manifest import Cause
from runner.workspace.paths import STANDING_FOLDERS, parents
from runner.workspace.tree import Tree

T = TypeVar("T")
# The outcome of a run, of the version that it makes, what is renamed in it, and what the run changed.
Closing = Callable[[int, Mapping[str, str], list[FileChange]], Mapping[str, Any]]

_FETCHES_AT_ONCE = 8
_BATCHES_AT_ONCE = 2
_FEW = 10  # fewer small files than this are stored sooner one by one
_READS_AT_ONCE = 32
# Nobody else gets the conversation's turn while files are fetched. A disk that stores less than this is of no use.
_STORING_S = 30.0
_BYTES_A_SECOND = 8 << 20
_FILES_A_SECOND = 200


class Unstored(Exception):
    """Fetching what a run changed was broken off, because it took too long or because somebody asked for it."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail, self.cause = code, detail, None


class _Todo(NamedTuple):
    """What a sandbox lacks, and has too much."""

    gone: list[str]
    files: list[FileEntry]
    links: dict[str, str]
    folders: list[str]


class _Work(NamedTuple):
    """What a run changed, by how it comes in; whoever takes the next one does it."""

    deleted: list[str]
    batches: Iterator[list[ChangedFile]]
    others: Iterator[ChangedFile]


class Mirror:
    """Which files of a workspace a live sandbox has, and how to make that all of them."""

    def __init__(
        self, workspace: Workspace, client: SandboxClient, check_disk: Callable[[int], None] = lambda size: None
    ) -> None:
        self.workspace, self.client = workspace, client
        self._check_disk = check_disk  # raises StoreFull when so many bytes of a run are not to be stored
        self._storing: asyncio.Timeout | None = None
        self._interrupted = False
        self.rewritten: list[FileEntry] = []  # by the last run, with the content that they had
        self.version = 0
        self.draft_seq = -1
        self._files: dict[str, FileEntry] = {}
        self._links: Mapping[str, str] = {}
        self._folders: frozenset[str] = frozenset()
        self._strays: set[str] = set()
        self._unknown = False

    async def take_over(self, version: int, draft_seq: int) -> None:
        """The sandbox has these files, from an earlier start of the service. Raises NotFound for what never was."""
        tree = await self.workspace.picture_at(version, draft_seq)
        self._files, self._links, self._folders = dict(tree.files), tree.links, tree.folders
        self.version, self.draft_seq = version, draft_seq

    def forget(self) -> None:
        """Nobody knows which files the sandbox has: the next ``push`` begins with none."""
        self.version, self._unknown = -1, True

    async def push(self) -> None:
        """Write what the sandbox lacks and remove what it should not have; nothing when nothing changed."""
        if self._unknown:
            await self.client.clear()
            self._files, self._links, self._folders, self._strays = {}, {}, frozenset(), set()
            self._unknown = False
        workspace = self.workspace
        state = (workspace.version, workspace.draft_seq)
        if state == (self.version, self.draft_seq):
            return
        tree = await workspace.picture(None)
        todo = await aside(
            tree.entry_count + len(self._files) + len(self._links) + len(self._folders), self._todo, tree
        )
        await self.client.remove(todo.gone)
        for start in range(0, len(todo.files), _READS_AT_ONCE):
            batch = await _all([self._outgoing(entry) for entry in todo.files[start : start + _READS_AT_ONCE]])
            await self.client.put(batch, {}, ())
        if todo.links or todo.folders:
            await self.client.put((), todo.links, todo.folders)
        self._files, self._links, self._folders, self._strays = dict(tree.files), tree.links, tree.folders, set()
        self.version, self.draft_seq = state

    def _todo(self, tree: Tree) -> _Todo:
        """What makes the sandbox's files those of ``tree``."""
        files, links, folders = tree.files, tree.links, tree.folders
        lost = [path for path in self._files if path not in files]
        lost_links = [path for path in self._links if path not in links]
        gone = [*lost, *(path for path in self._strays if path not in files and path not in self._files)]
        gone += [path for path in lost_links if path not in files]
        wanted = [entry for path, entry in files.items() if not _same(self._files.get(path), entry)]
        # A large file that replaces another goes first: the workspace need not have room for both.
        gone += [entry.path for entry in wanted if entry.size > INLINE and entry.path in self._files]
        # Folders that lost their last file go too: the next run would report them as empty ones of its own.
        lost_folders = self._folders - folders
        emptied = {parent for place in (lost, lost_links, lost_folders) for path in place for parent in parents(path)}
        emptied |= lost_folders
        gone += sorted(folder for folder in emptied - STANDING_FOLDERS if not tree.is_folder(folder))
        links_wanted = {path: target for path, target in links.items() if self._links.get(path) != target}
        return _Todo(gone, wanted, links_wanted, sorted(folders - self._folders))

    async def _outgoing(self, entry: FileEntry) -> Outgoing:
        if entry.size > INLINE:
            return Outgoing(entry, chunks=self._read(entry))
        return Outgoing(entry, content=b"".join([chunk async for chunk in self._read(entry)]))

    async def _read(self, entry: FileEntry) -> AsyncIterator[bytes]:
        stream = await self.workspace.open(entry)
        try:
            async for chunk in stream:
                yield chunk
        finally:
            await stream.aclose()

    async def pull(
        self,
        end: RunEnd,
        execution_id: str,
        limits: RunLimits | None = None,
        closing: Closing | None = None,
    ) -> tuple[CommitResult, list[FileChange]]:
        """Store what the run changed and cut a version, with the run's outcome where ``closing`` gives one.

        Raises TooLarge, QuotaExceeded, StoreFull before anything is fetched, SandboxLost, Unstored.
        """
        if limits is not None:
            await aside(len(end.changes), _check_limits, end, limits)
        self.rewritten = []
        changes, contents = await self._store(end) if end.changes else ([], {})
        result = await self.workspace.commit(
            changes,
            synced_seq=self.draft_seq,
            base_version=self.version,
            cause=Cause("run", execution_id=execution_id),
            links=end.links,
            folders=end.folders,
            contents=contents,
            closing=closing and (lambda version, renamed: (execution_id, closing(version, renamed, changes))),
        )
        self._note(changes, end, result)
        return result, changes

    async def pulled(self, end: RunEnd, version: int) -> list[FileChange]:
        """What a run changed whose ``version`` an earlier start of the service has stored.

        Its report may differ from that, where a file was given another name: the sandbox is then filled anew.
        """
        stored = (await self.workspace.picture(version)).files
        changes: list[FileChange] = []
        for change in end.changes:
            known, entry = change.path in self._files, stored.get(change.path)
            if change.change == "deleted" and known:
                changes.append(FileChange(change.path, "deleted", None))
            elif entry is not None and entry != self._files.get(change.path):
                changes.append(FileChange(change.path, "modified" if known else "created", entry))
        self.forget()
        return changes

    async def _store(self, end: RunEnd) -> tuple[list[FileChange], dict[str, bytes]]:
        """What changed, fetched as far as there is room for it, in bounded time; and contents to be stored with it."""
        size = await aside(len(end.changes), self._check_room, end)
        self._check_disk(size)
        if end.contents:
            return self._along(end)
        limit_s = max(_STORING_S, size / _BYTES_A_SECOND, len(end.changes) / _FILES_A_SECOND)
        self._interrupted = False
        try:
            async with asyncio.timeout(limit_s) as self._storing:
                return await self._fetch(end.changes), {}
        except TimeoutError:
            if self._interrupted:
                raise Unstored("interrupted", "the run was interrupted while its files were being stored") from None
            raise Unstored(
                "timeout", f"its files could not be stored in {limit_s:.0f} s; make fewer or smaller ones"
            ) from None
        finally:
            self._storing = None

    def _along(self, end: RunEnd) -> tuple[list[FileChange], dict[str, bytes]]:
        """What changed, where all its contents came with the report."""
        named, fresh = self.workspace.name_contents(list(end.contents.values()))
        stored = dict(zip(end.contents, named, strict=True))
        changes = [
            FileChange(change.path, "deleted", None)
            if change.change == "deleted"
            else self._changed(change, *stored[change.path])
            for change in end.changes
            if change.change != "deleted" or change.path in self._files
        ]
        return [change for change in changes if change is not None], fresh

    def stop_storing(self) -> bool:
        """Break off the fetching that is going on; False when none is."""
        storing = self._storing
        if storing is None:
            return False
        if not storing.expired():
            self._interrupted = True
            storing.reschedule(0)
        return True

    def _check_room(self, end: RunEnd) -> int:
        """The bytes of all that is to be fetched. Raises TooLarge, QuotaExceeded."""
        limit = self.workspace_limit
        for change in end.changes:
            if change.size > limit:
                raise TooLarge(f"{change.path} has {change.size} bytes; a file may have {limit}", limit=limit)
        shape = 0
        if (self.version, self.draft_seq) == (self.workspace.version, self.workspace.draft_seq):
            shape += len(self._links if end.links is None else end.links)
            shape += len(self._folders if end.folders is None else end.folders)
        sizes = ((change.path, None if change.change == "deleted" else change.size) for change in end.changes)
        return self.workspace.check_coming(self._files, sizes, shape)

    def reject(self, end: RunEnd) -> None:
        """What the run changed could not be stored: the next ``push`` puts the files back as the store has them."""
        for change in end.changes:
            self._files.pop(change.path, None)
            if change.change != "deleted":
                self._strays.add(change.path)
        if end.links is not None:
            self._links = dict.fromkeys(end.links, "")  # targets may be more than is to be kept in memory
        if end.folders is not None:
            self._folders = frozenset(end.folders)
        self.version = -1

    def _note(self, changes: list[FileChange], end: RunEnd, result: CommitResult) -> None:
        for change in changes:
            if change.entry is None:
                self._files.pop(change.path, None)
            else:
                self._files[change.path] = change.entry
        if end.links is not None:
            self._links = dict(end.links)
        if end.folders is not None:
            self._folders = frozenset(end.folders)
        clean = not result.renamed and self.workspace.draft_seq == self.draft_seq
        self.version = result.version if clean else -1

    async def _fetch(self, reported: Sequence[ChangedFile]) -> list[FileChange]:
        """Bring in all that changed, small files many at a time; the changes in the order of the report."""
        blobs: dict[str, str] = {}
        work = await aside(len(reported), self._work, reported)
        found = {path: FileChange(path, "deleted", None) for path in work.deleted}

        async def fetch_batches() -> None:
            for batch in work.batches:
                found.update((change.path, change) for change in await self._fetch_small(batch, blobs))

        async def fetch_others() -> None:
            for change in work.others:
                fetched = await self._fetch_one(change, blobs)
                if fetched is not None:
                    found[change.path] = fetched

        await _all([
            *(fetch_batches() for _ in range(_BATCHES_AT_ONCE)),
            *(fetch_others() for _ in range(_FETCHES_AT_ONCE)),
        ])  # fmt: skip
        return [found[change.path] for change in reported if change.path in found]

    def _work(self, reported: Sequence[ChangedFile]) -> _Work:
        there = [change for change in reported if change.change != "deleted"]
        small = [change for change in there if change.size <= INLINE]
        if len(small) < _FEW:
            small = []
        batched = {change.path for change in small}
        return _Work(
            [change.path for change in reported if change.change == "deleted" and change.path in self._files],
            iter(_batches(small)),
            iter([change for change in there if change.path not in batched]),
        )

    async def _fetch_small(self, batch: list[ChangedFile], blobs: dict[str, str]) -> list[FileChange]:
        contents = await self.client.fetch_many([(change.path, change.size) for change in batch])
        kept = await self.workspace.adopt_contents(contents, blobs)
        blobs.update((sha256, blob) for sha256, _, blob in kept)
        changes = [self._changed(change, *stored) for change, stored in zip(batch, kept, strict=True)]
        return [change for change in changes if change is not None]

    async def _fetch_one(self, change: ChangedFile, blobs: dict[str, str]) -> FileChange | None:
        async with self.workspace.stage(self.workspace_limit) as staging:
            async with aclosing(self.client.fetch(change.path, change.size)) as chunks:
                async for chunk in chunks:
                    await staging.write(chunk)
            sha256, size, blob = await self.workspace.adopt_blob(staging, blobs)
            blobs[sha256] = blob
        return self._changed(change, sha256, size, blob)

    def _changed(self, change: ChangedFile, sha256: str, size: int, blob: str) -> FileChange | None:
        """The change as a version notes it; None when the file is what it was."""
        entry = FileEntry(change.path, size, sha256, blob, change.mode, change.modified_ns)
        known = self._files.get(change.path)
        if known is not None and known.sha256 == sha256 and known.mode == change.mode:
            self.rewritten.append(known)
            return None
        return FileChange(change.path, "created" if known is None else "modified", entry)

    @property
    def workspace_limit(self) -> int:
        """The most bytes one file of a run may have."""
        return self.workspace.max_bytes


def _batches(files: list[ChangedFile]) -> list[list[ChangedFile]]:
    """Small files in groups that one message can carry."""
    groups: list[list[ChangedFile]] = []
    room = 0
    for file in files:
        if not groups or len(groups[-1]) >= FETCH_FILES or file.size > room:
            groups.append([])
            room = FETCH_BYTES
        groups[-1].append(file)
        room -= file.size
    return groups


def _check_limits(end: RunEnd, limits: RunLimits) -> None:
    """Raises QuotaExceeded when a run changed more than it may store."""
    files = [change for change in end.changes if change.change != "deleted"]
    if limits.artifacts is not None and len(files) > limits.artifacts:
        raise QuotaExceeded(
            f"the run made or changed {len(files)} files, and may {limits.artifacts} (limits.artifacts of the call, "
            "SANDBOX_MAX_ARTIFACTS)",
            limit=limits.artifacts,
        )
    for change in files:
        if limits.artifact_bytes is not None and change.size > limits.artifact_bytes:
            raise QuotaExceeded(
                f"{change.path} has {change.size} bytes, and a file of a run may have {limits.artifact_bytes} "
                "(limits.artifact_bytes of the call, SANDBOX_MAX_ARTIFACT_BYTES)",
                limit=limits.artifact_bytes,
            )


def _same(have: FileEntry | None, want: FileEntry) -> bool:
    return have is want or (have is not None and have.sha256 == want.sha256 and have.mode == want.mode)


async def _all(work: list[Coroutine[Any, Any, T]]) -> list[T]:
    """Results in order; at the first failure the others are cancelled and waited for."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
