"""What a run changed comes in: small files many at a time, large ones by themselves, each with its own bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from runner.conversations.sync import Mirror
from runner.interpreter.client import FETCH_BYTES, FETCH_FILES, INLINE, ChangedFile, RunEnd, SandboxClient
from runner.model import ChangeKind
from tests.unit.workspace.workspace_lab import contents, memory_lab


class FakeClient:
    """Has the files; notes how each was asked for."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.batches: list[list[str]] = []
        self.single: list[str] = []

    async def fetch(self, path: str, limit: int) -> AsyncIterator[bytes]:
        self.single.append(path)
        yield self.files[path][:limit]

    async def fetch_many(self, files: Sequence[tuple[str, int]]) -> list[bytes]:
        assert len(files) <= FETCH_FILES
        assert sum(size for _, size in files) <= FETCH_BYTES
        self.batches.append([path for path, _ in files])
        return [self.files[path] for path, _ in files]


def changed(path: str, content: bytes, kind: ChangeKind = "created") -> ChangedFile:
    return ChangedFile(path=path, change=kind, size=len(content), mode=0o644, modified_ns=1)


def ended(changes: list[ChangedFile]) -> RunEnd:
    observed: Any = None  # how it ended does not matter here
    return RunEnd(observed, 1, "kept", None, None, 0, {}, changes)


async def pulled(
    files: dict[str, bytes], more: list[ChangedFile] | None = None
) -> tuple[FakeClient, Mirror, list[str]]:
    at, store = memory_lab()
    space = await at.space()
    client = FakeClient(files)
    mirror = Mirror(space, cast(SandboxClient, client))
    mirror.draft_seq = 0
    reported = [changed(path, content) for path, content in files.items()] + (more or [])
    result, changes = await mirror.pull(ended(reported), "x1")
    assert await contents(space) == files == await contents(await at.again())
    assert result.version == 1
    assert [change.path for change in changes] == list(files)
    return client, mirror, [key for key in store.objects_now if "/b/" in key]


async def test_many_small_files_take_few_requests_and_equal_ones_one_blob() -> None:
    files = {f"d/{number}": b"%d" % (number % 700) for number in range(3 * FETCH_FILES)}
    files["large"] = bytes(INLINE + 1)
    client, _, blobs = await pulled(files)
    assert [len(batch) for batch in client.batches] == [FETCH_FILES] * 3
    assert client.single == ["large"]
    assert 701 <= len(blobs) <= 701 + FETCH_FILES  # two batches under way do not know of each other


async def test_no_message_is_larger_than_a_channel_carries() -> None:
    files = {f"{number}": bytes([number]) * INLINE for number in range(20)}
    client, _, _ = await pulled(files)
    assert [len(batch) for batch in client.batches] == [8, 8, 4]


async def test_few_files_are_fetched_by_themselves() -> None:
    client, _, _ = await pulled({f"{number}": b"%d" % number for number in range(9)})
    assert (client.batches, len(client.single)) == ([], 9)


async def test_what_a_batch_brings_unchanged_is_no_change_and_what_is_gone_is_one() -> None:
    files = {f"{number}": b"%d" % number for number in range(50)}
    client, mirror, _ = await pulled(files, [changed("never there", b"", "deleted")])
    client.files = {**files, "7": b"new"}
    reported = [changed(path, content, "modified") for path, content in client.files.items() if path != "8"]
    result, changes = await mirror.pull(ended([*reported, changed("8", b"", "deleted")]), "x2")
    assert [(change.path, change.change) for change in changes] == [("7", "modified"), ("8", "deleted")]
    assert result.version == 2
