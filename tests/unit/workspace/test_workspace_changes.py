"""Requests that change several paths at once: many files, moves, folders deleted, content by its hash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from runner.errors import (
    Conflict,
    FolioboxError,
    InvalidPath,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    QuotaExceeded,
    StoreFailed,
    UnknownBlob,
)
from runner.model import FileChange, FileEntry
from runner.workspace import keys
from runner.workspace.history import Workspace
from runner.workspace.tree import Tree
from tests.unit.workspace.workspace_lab import (
    RUN,
    contents,
    cut,
    fake_entry,
    gone,
    lab,
    made,
    memory_lab,
    put,
    run,
    sha,
)

DEEP = "/".join("d" * 9 for _ in range(60))


async def put_many(space: Workspace, files: list[tuple[str, bytes]], **more: dict[str, int]) -> list[FileEntry]:
    items = []
    for path, data in files:
        staging = space.stage()
        await staging.write(data)
        items.append((path, staging))
    return await space.put_many(items, **more)


def test_many_files_are_one_entry_and_durable(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "old", b"old")
            files = [("/workspace/a/1", b"1"), ("./a/2", b"2"), ("b", b"1"), ("c", b"old"), ("old", b"new")]
            entries = await put_many(space, files, modes={"b": 0o4755}, modified_ns={"b": 7})
            assert [entry.path for entry in entries] == ["a/1", "a/2", "b", "c", "old"]
            assert (entries[2].mode, entries[2].modified_ns, entries[0].mode) == (0o755, 7, 0o644)
            assert entries[0].blob == entries[2].blob
            assert space.draft_seq == 2
            assert await put_many(space, []) == []
            assert len(at.blobs()) == 4
            assert at.staged() == []
        async with lab(tmp_path) as at:
            expected = {"a/1": b"1", "a/2": b"2", "b": b"1", "c": b"old", "old": b"new"}
            assert await contents(await at.space()) == expected

    run(scenario())


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ([("a", b""), ("/work/a", b"")], InvalidRequest),
        ([("a", b""), ("a/b", b"")], Conflict),
        ([("a/b", b""), ("a", b"")], Conflict),
        ([("ok", b""), ("file/x", b"")], Conflict),
        ([("ok", b""), ("folder", b"")], Conflict),
        ([("ok", b""), ("../x", b"")], InvalidPath),
        ([("ok", bytes(60)), ("ok2", bytes(61))], QuotaExceeded),
        ([(f"n{number}", b"") for number in range(20)], QuotaExceeded),
    ],
)
def test_many_files_of_which_one_cannot_be(files: list[tuple[str, bytes]], error: type[FolioboxError]) -> None:
    async def scenario() -> None:
        at, _ = memory_lab(workspace_bytes=130, max_files=20)
        space = await at.space()
        await put(space, "file", bytes(10))
        await put(space, "folder/x", b"")
        before = await contents(space)
        with pytest.raises(error):
            await put_many(space, files)
        assert await contents(space) == await contents(await at.again()) == before
        assert space.draft_seq == 2

    run(scenario())


def test_the_quota_of_many_counts_what_is_there_in_the_end() -> None:
    async def scenario() -> None:
        at, _ = memory_lab(workspace_bytes=100)
        space = await at.space()
        await put(space, "a", bytes(90))
        await put_many(space, [("b", bytes(90)), ("a", b"")])
        assert space.size_bytes == 90

    run(scenario())


def test_a_store_that_fails_midway_leaves_nothing_of_many() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        await put(space, "old/x", b"old")
        keep = dict(store.objects_now)
        for fail_at in range(4):
            tries: list[str] = []

            def fail(key: str, fail_at: int = fail_at, tries: list[str] = tries) -> None:
                tries.append(key)
                if len(tries) > fail_at:
                    raise StoreFailed("full")

            store.before = fail
            for attempt in (put_many(space, [("a", b"1"), ("b", b"2"), ("old/x", b"3")]), space.move("old", "new")):
                with pytest.raises(StoreFailed):
                    await attempt
                store.before = lambda key: None
                assert await contents(space) == await contents(await at.again()) == {"old/x": b"old"}
                store.before = fail
            store.before = lambda key: None
            store.objects_now = dict(keep)
        await put_many(space, [("a", b"1")])
        assert set(space.files) == set((await at.again()).files) == {"old/x", "a"}

    run(scenario())


def test_moving_files_links_and_folders() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        await put(space, "in/a", b"1", mode=0o755, modified_ns=5)
        await put(space, "in/deep/b", b"2")
        await space.commit([], synced_seq=2, cause=RUN, links={"in/l": "a", "m": "in/a"}, folders={"in/empty/e", "e"})
        seq = space.draft_seq
        moved = await space.move("/workspace/in", "out/x")
        assert next((entry.path, entry.mode, entry.modified_ns) for entry in moved) == ("out/x/a", 0o755, 5)
        assert (set(space.files), dict(space.links), set(space.folders)) == (
            {"out/x/a", "out/x/deep/b"},
            {"out/x/l": "a", "m": "in/a"},
            {"out/x/empty/e", "e"},
        )
        assert space.draft_seq == seq + 1
        assert await space.move("m", "n") == []
        assert await space.move("e", "f/g") == []
        assert await space.move("out/x/a", "f/g") == [space.files["f/g"]]
        await space.move("f", "e2")
        await space.move("out", "e3")
        again = await at.again()
        assert again.files == space.files
        assert again.links == space.links == {"e3/x/l": "a", "n": "in/a"}
        assert again.folders == space.folders == {"e3/x/empty/e"}
        assert await contents(again) == {"e2/g": b"1", "e3/x/deep/b": b"2"}
        result = await cut(space, "y", b"")
        assert result.manifest.links == space.links
        assert (await at.again()).folders == {"e3/x/empty/e"}

    run(scenario())


@pytest.mark.parametrize(
    ("source", "target", "options", "error"),
    [
        ("none", "x", {}, NotFound),
        ("a", "a", {}, Conflict),
        ("a", "a/b", {}, Conflict),
        ("d", "d/e/f", {}, Conflict),
        ("d", "d", {}, Conflict),
        ("a", "b", {}, PreconditionFailed),
        ("a", "l", {}, PreconditionFailed),
        ("l", "b", {}, PreconditionFailed),
        ("a", "d", {"if_absent": False}, Conflict),
        ("a", "b/x", {}, Conflict),
        ("a", "l/x", {}, Conflict),
        ("d", "b", {"if_absent": False}, PreconditionFailed),
        ("d", "l", {"if_absent": False}, PreconditionFailed),
        ("d", "f", {}, Conflict),
        ("d", "g", {}, Conflict),
        ("d", "b/x", {}, Conflict),
        ("a", "x", {"if_match": sha(b"other")}, PreconditionFailed),
        ("d", "x", {"if_match": "*"}, PreconditionFailed),
        ("d", DEEP + "/x/y/z", {}, InvalidPath),
        ("a", "../x", {}, InvalidPath),
        ("/etc", "x", {}, InvalidPath),
    ],
)
def test_a_move_that_is_refused_changes_nothing(
    source: str, target: str, options: dict[str, Any], error: type[FolioboxError]
) -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        for path in ("a", "b", "d/e/1", "f/1"):
            await put(space, path, path.encode())
        await space.commit([], synced_seq=4, cause=RUN, links={"l": "a"}, folders={"g/h"})
        before = (space.files, space.links, space.folders, space.draft_seq)
        with pytest.raises(error):
            await space.move(source, target, **options)
        assert (space.files, space.links, space.folders, space.draft_seq) == before

    run(scenario())


def test_a_move_that_replaces() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        for path in ("a", "b"):
            await put(space, path, path.encode())
        await space.commit([], synced_seq=2, cause=RUN, links={"l": "a"}, folders={"e"})
        await space.move("a", "b", if_absent=False, if_match=sha(b"a"))
        assert await contents(space) == {"b": b"a"}
        await space.move("l", "b", if_absent=False)
        assert (dict(space.files), space.links) == ({}, {"b": "a"})
        await put(space, "c", b"c")
        await space.move("c", "b", if_absent=False)
        assert (await contents(space), space.links) == ({"b": b"c"}, {})
        await space.move("b", "e")  # an empty folder gives way, as it does to an upload
        again = await at.again()
        assert (await contents(again), again.folders) == ({"e": b"c"}, frozenset())

    run(scenario())


def test_a_run_meets_moves_it_has_not_seen() -> None:
    """What was moved stays where it was moved to; what the run made of it is kept beside."""

    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        for path in ("data/a", "data/b", "other"):
            await put(space, path, path.encode())
        await space.commit([], synced_seq=3, cause=RUN, links={"l": "other"})
        seen = space.draft_seq
        changes = [await made(space, "data/a", b"by the run"), await made(space, "l2/x", b"below"), gone("other")]
        await space.move("data", "moved")
        await space.move("l", "l2")
        await space.move("other", "kept")
        result = await space.commit(changes, synced_seq=seen, cause=RUN, links={"l": "other"}, folders=["moved"])
        expected = {
            "moved/a": b"data/a",
            "moved/b": b"data/b",
            "kept": b"other",
            "data/a (run 2)": b"by the run",
            "l2 (run 2)/x": b"below",
        }
        again = await at.again()
        assert await contents(space) == await contents(again) == expected
        assert (space.links, space.folders) == (again.links, again.folders) == ({"l2": "other"}, frozenset())
        assert result.renamed == {"data/a": "data/a (run 2)", "l2/x": "l2 (run 2)/x"}

    run(scenario())


def test_deleting_folders() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        for path in ("d/a", "d/e/b", "dd", "x"):
            await put(space, path, b"")
        await space.commit([], synced_seq=4, cause=RUN, links={"d/l": "a"}, folders={"d/empty", "hollow/e"})
        for folder in ("d", "hollow"):
            with pytest.raises(Conflict, match="is a folder"):
                await space.delete(folder)
        with pytest.raises(NotFound):
            await space.delete("none", recursive=True)
        with pytest.raises(PreconditionFailed):
            await space.delete("d", "*", recursive=True)
        seq = space.draft_seq
        await space.delete("d", recursive=True)
        assert space.draft_seq == seq + 1
        await space.delete("hollow", recursive=True)
        await space.delete("x", sha(b""), recursive=True)
        again = await at.again()
        for one in (space, again):
            assert (set(one.files), one.links, one.folders) == ({"dd"}, {}, frozenset())

    run(scenario())


def test_content_by_its_hash() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space, other = await at.space(), await at.space("other")
        await put(other, "secret", b"secret")
        await put(space, "a", b"first")
        old = space.files["a"].blob
        for number in range(70):  # beyond what the index remembers, across whole versions and deltas
            await cut(space, "a", b"%d" % number)
        for reader in (space, await at.again()):
            blobs = len([key for key in store.objects_now if "/b/" in key])
            for wanted in (b"0", b"40", b"69"):
                entry = await reader.put_known(f"k{wanted.decode()}", sha(wanted))
                assert (entry.sha256, entry.size) == (sha(wanted), len(wanted))
            assert len([key for key in store.objects_now if "/b/" in key]) == blobs
            await reader.refresh()
            assert (await contents(reader))["k0"] == b"0"
        for unknown in (b"secret", b"never", b"first"):  # the last: no version named it, only a draft entry
            with pytest.raises(UnknownBlob):
                await space.put_known("x", sha(unknown))
        assert keys.blob("t", old) in store.objects_now
        for bad in ("", "x" * 64, sha(b"0").upper(), sha(b"0")[1:]):
            with pytest.raises(InvalidRequest):
                await space.put_known("x", bad)
        with pytest.raises(PreconditionFailed):
            await space.put_known("a", sha(b"0"), if_absent=True)
        with pytest.raises(PreconditionFailed):
            await space.put_known("a", sha(b"0"), if_match=sha(b"0"))
        del store.objects_now[keys.blob("t", space.files["k40"].blob)]
        with pytest.raises(UnknownBlob):
            await space.put_known("y", sha(b"40"))

    run(scenario())


def test_looking_for_content_that_is_not_there_is_cheap() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        for number in range(100):
            await cut(space, "a", b"%d" % number)
        before = store.trips
        with pytest.raises(UnknownBlob):
            await space.put_known("x", sha(b"none"))
        assert store.trips - before <= 8

    run(scenario())


def test_what_versions_changed() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        await put(space, "b", b"1")
        await put(space, "a", b"1")
        await cut(space, "c", b"1")
        await space.commit([gone("a"), await made(space, "b", b"2")], synced_seq=2, cause=RUN)
        assert await space.changes(0) == []
        first = await space.changes(1)
        assert [(one.path, one.change) for one in first] == [("a", "created"), ("b", "created"), ("c", "created")]
        assert await space.changes(2) == [
            FileChange("a", "deleted", None),
            FileChange("b", "modified", space.files["b"]),
        ]
        with pytest.raises(NotFound):
            await space.changes(3)
        fork = await at.spaces.fork(space, 1, "f")
        assert [one.path for one in await fork.changes(0)] == ["a", "b", "c"]

    run(scenario())


def test_versions_whose_removal_was_cut_off_are_not_there() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        for number in range(70):
            await cut(space, "a", b"%d" % number)
        home = keys.incarnation("t", "a", "000001")
        for number in (*range(32), 32, 33):  # the first chain, and of the second what goes first
            del store.objects_now[keys.version(home, number)]
        again = await at.again()
        assert [info.version for info in await again.versions(limit=1000)] == list(range(70, 63, -1))
        assert [info.version for info in await again.versions(after=66, limit=100)] == [65, 64]
        assert await again.versions(after=60) == []
        for missing in (0, 31, 32, 33, 40, 63):
            with pytest.raises(NotFound):
                await again.manifest(missing)
            with pytest.raises(NotFound):
                await again.restore(missing)
        assert len(await again.changes(65)) == 1
        with pytest.raises(NotFound, match="the one before it is not kept"):
            await again.changes(64)
        del store.objects_now[keys.version(home, 64)]
        with pytest.raises(StoreFailed):  # of the newest chain nothing may be missing
            await at.again()

    run(scenario())


def test_own_limits_of_a_conversation() -> None:
    async def scenario() -> None:
        at, _ = memory_lab(workspace_bytes=100, max_files=4)
        space = await at.space()
        space.limit(50, 2)
        assert space.max_bytes == 50
        with pytest.raises(QuotaExceeded, match=r"limits\.workspace_bytes of this conversation"):
            await put(space, "a", bytes(51))
        await put(space, "a", bytes(50))
        await put(space, "b", b"")
        with pytest.raises(QuotaExceeded, match="this conversation's own"):
            await put(space, "c", b"")
        for most in (None, 1000):
            space.limit(most, most)
            assert space.max_bytes == 100
        await put(space, "c", bytes(50))
        with pytest.raises(QuotaExceeded, match="SANDBOX_WORKSPACE_SIZE"):
            await put(space, "d", b"1")

    run(scenario())


def test_a_file_takes_the_place_of_folders_that_hold_only_folders() -> None:
    tree = Tree({}, {}, {"a/b/c", "a/d", "e"})
    tree.put(fake_entry("a"))
    assert (set(tree.files), set(tree.folders)) == ({"a"}, {"e"})
    tree = Tree({}, {}, {"a/b/c", "e"})
    tree.put_folder("e/f")
    tree.put_folder("a/b")  # which is there, as the folder above another
    assert set(tree.folders) == {"a/b/c", "e/f"}
    tree.put_link("e/f", "y")
    tree.put_folder("e/f/g")
    tree.remove("e/f")
    tree.put_link("a/b", "x")
    assert (dict(tree.links), tree.folders) == ({"a/b": "x"}, frozenset())


def test_two_who_move_the_same_file() -> None:
    async def scenario() -> None:
        at, _ = memory_lab()
        space = await at.space()
        await put(space, "a", b"1")
        spaces = [await at.again() for _ in range(4)]
        said = await asyncio.gather(
            *(one.move("a", f"b{number}") for number, one in enumerate(spaces)), return_exceptions=True
        )
        assert sum(isinstance(one, NotFound) for one in said) == 3
        assert list((await contents(await at.again())).values()) == [b"1"]

    run(scenario())
