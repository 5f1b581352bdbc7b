"""Changes that clients make to a workspace: files in, moved and deleted, each request one durable draft entry."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from runner.errors import UnknownBlob
from runner.model import FileEntry
from runner.workspace import keys
from runner.workspace.aside import aside
from runner.workspace.base import Digest, KeyExists, Staging
from runner.workspace.core import Core
from runner.workspace.guards import check_put
from runner.workspace.known import check_sha256, find_content
from runner.workspace.paths import normalise
from runner.workspace.plans import Plan, plan_delete, plan_move, plan_put, plan_puts, unique_paths
from runner.workspace.runs import MODE_BITS
from runner.workspace.tree import Tree


class Uploads(Core):
    """``if_match`` is a SHA-256, several with commas between, or ``*`` for any content."""

    def stage(self, max_bytes: int | None = None) -> Staging:
        """Begin an upload of at most ``max_bytes`` (default: the upload limit), as a context manager."""
        return self._store.stage(self._config.max_upload_bytes if max_bytes is None else max_bytes)

    async def put(
        self,
        path: str,
        staging: Staging,
        *,
        if_absent: bool = False,
        if_match: str | None = None,
        mode: int = 0o644,
        modified_ns: int | None = None,
        beyond: int = 0,
    ) -> FileEntry:
        """Store what was staged under ``path``. When it returns, blob and draft entry are durable.

        ``beyond``: bytes that the workspace may take above its limit for this file.

        Raises ``InvalidPath``, ``PreconditionFailed``, ``Conflict``, ``QuotaExceeded``, ``StoreFailed``; the
        staging is then aborted by its context manager.
        """
        path = normalise(path)
        digest = await staging.finish()
        self._check_alive()
        quota = replace(self._quota, max_bytes=self._quota.max_bytes + beyond) if beyond else self._quota
        check_put(self._state.tree, path, digest.size, quota, if_absent, if_match)
        blob = await self._keep(staging, digest)
        entry = _entry(path, digest, blob, mode, modified_ns)
        await self._append(lambda tree: plan_put(tree, entry, quota, if_absent, if_match))
        return entry

    async def put_many(
        self,
        items: Sequence[tuple[str, Staging]],
        *,
        modes: Mapping[str, int] | None = None,
        modified_ns: Mapping[str, int] | None = None,
    ) -> list[FileEntry]:
        """Store several files together: all of them or, whatever goes wrong, none.

        ``modes`` and ``modified_ns`` are by path as given in ``items``. Raises what ``put`` raises, and
        ``InvalidRequest`` for a path that comes twice.
        """
        paths = await aside(len(items), unique_paths, [path for path, _ in items])
        if not items:
            return []
        digests = [await staging.finish() for _, staging in items]
        self._check_alive()
        entries = [
            _entry(path, digest, "", (modes or {}).get(name, 0o644), (modified_ns or {}).get(name))
            for path, digest, (name, _) in zip(paths, digests, items, strict=True)
        ]
        await aside(len(entries), plan_puts, self._state.tree.copy(), entries, self._quota)
        kept = await self.adopt_many([staging for _, staging in items])
        stored = [replace(entry, blob=blob) for entry, (_, _, blob) in zip(entries, kept, strict=True)]
        await self._append(lambda tree: plan_puts(tree, stored, self._quota), lambda _: len(stored))
        return stored

    async def put_known(
        self, path: str, sha256: str, *, if_absent: bool = False, if_match: str | None = None
    ) -> FileEntry:
        """Store bytes that the current files or a kept version of this conversation hold, by their hash.

        Raises ``UnknownBlob``, ``InvalidRequest`` for what is no SHA-256, and what ``put`` raises.
        """
        path = normalise(path)
        check_sha256(sha256)
        self._check_alive()
        found = await find_content(self._state, self._ledger, sha256)
        if found is None or not await self._store.exists(keys.blob(self.tenant, found[0])):
            raise UnknownBlob("No file or version of this conversation holds this content; send the bytes.")
        blob, size = found
        entry = _entry(path, Digest(sha256, size), blob, 0o644, None)
        await self._append(lambda tree: plan_put(tree, entry, self._quota, if_absent, if_match))
        return entry

    async def move(
        self, source: str, target: str, *, if_absent: bool = True, if_match: str | None = None
    ) -> list[FileEntry]:
        """Move a file, a link, or a folder with all below it; the files under their new paths.

        ``if_absent`` keeps a file at ``target`` from being replaced; ``if_match`` is the content of the file
        moved. Raises ``InvalidPath``, ``NotFound``, ``PreconditionFailed``, ``Conflict``: also for a folder
        with files in it at ``target``, and for a folder into itself.
        """
        source, target = normalise(source), normalise(target)
        moved: list[FileEntry] = []

        def plan(tree: Tree) -> Plan:
            made = plan_move(tree, source, target, if_absent, if_match)
            moved[:] = made.files
            return made

        await self._append(plan, lambda tree: tree.count_below(source))
        return moved

    async def delete(self, path: str, if_match: str | None = None, *, recursive: bool = False) -> None:
        """Delete a file, a link or an empty folder; with ``recursive`` also a folder with all below it.

        Raises ``InvalidPath``, ``NotFound``, ``PreconditionFailed``, ``Conflict``.
        """
        path = normalise(path)
        await self._append(
            lambda tree: plan_delete(tree, path, if_match, recursive), lambda tree: tree.count_below(path)
        )

    async def adopt_blob(self, staging: Staging, recent: Mapping[str, str] | None = None) -> tuple[str, int, str]:
        """Keep bytes out of a sandbox, durably: (sha256, size, blob). A commit must name them in a day.

        ``recent`` are blobs by hash that the same commit will name: equal files of one run share an object.
        """
        digest = await staging.finish()
        if recent and digest.sha256 in recent:
            await staging.abort()
            return digest.sha256, digest.size, recent[digest.sha256]
        return digest.sha256, digest.size, await self._keep(staging, digest)

    async def adopt_many(self, stagings: Sequence[Staging]) -> list[tuple[str, int, str]]:
        """Several at once, in few steps of the store: (sha256, size, blob) of each. Equal ones share a blob."""
        blobs: dict[str, str] = {}
        fresh: list[tuple[str, Staging]] = []
        found: list[Digest] = []
        for staging in stagings:
            digest = await staging.finish()
            found.append(digest)
            known = self._state.blobs.find(digest.sha256, self.version)
            if digest.sha256 in blobs or known is not None:
                await staging.abort()
                blobs.setdefault(digest.sha256, known[0] if known else "")
            else:
                blobs[digest.sha256] = keys.new_blob(digest.sha256)
                fresh.append((keys.blob(self.tenant, blobs[digest.sha256]), staging))
        if fresh:
            await self._store.commit_many(fresh)
        return [(digest.sha256, digest.size, blobs[digest.sha256]) for digest in found]

    async def adopt_contents(
        self, contents: Sequence[bytes], recent: Mapping[str, str] | None = None
    ) -> list[tuple[str, int, str]]:
        """``adopt_blob`` for many small contents at once, in their order."""
        found, fresh = self.name_contents(contents, recent)
        if fresh:
            await self._store.create_many([(keys.blob(self.tenant, blob), content) for blob, content in fresh.items()])
        return found

    def name_contents(
        self, contents: Sequence[bytes], recent: Mapping[str, str] | None = None
    ) -> tuple[list[tuple[str, int, str]], dict[str, bytes]]:
        """As ``adopt_contents``, but stores nothing; and the contents that ``commit`` has to store, by their blobs."""
        blobs = dict(recent or {})
        fresh: dict[str, bytes] = {}
        found: list[tuple[str, int, str]] = []
        for content in contents:
            digest = hashlib.sha256(content).hexdigest()
            if digest not in blobs:
                known = self._state.blobs.find(digest, self.version)
                blobs[digest] = keys.new_blob(digest) if known is None else known[0]
                if known is None:
                    fresh[blobs[digest]] = content
            found.append((digest, len(content), blobs[digest]))
        return found, fresh

    async def _keep(self, staging: Staging, digest: Digest) -> str:
        known = self._state.blobs.find(digest.sha256, self.version)
        if known is not None:
            await staging.abort()
            return known[0]
        blob = keys.new_blob(digest.sha256)
        with suppress(KeyExists):  # the name says the hash: what is there has the same bytes
            await staging.commit(keys.blob(self.tenant, blob))
        return blob


def _entry(path: str, digest: Digest, blob: str, mode: int, modified_ns: int | None) -> FileEntry:
    modified = time.time_ns() if modified_ns is None else modified_ns
    return FileEntry(path, digest.size, digest.sha256, blob, mode & MODE_BITS, modified)
