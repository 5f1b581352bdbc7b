"""One conversation: uploads, runs, versions, restores, limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.errors import (
    Conflict,
    InvalidPath,
    NotFound,
    PreconditionFailed,
    ProtocolError,
    QuotaExceeded,
    RangeNotSatisfiable,
    StoreFailed,
    TooLarge,
)
from runner.workspace.base import CHUNK_BYTES
from runner.workspace.manifest import Cause, Counts
from tests.unit.workspace.workspace_lab import (
    RUN,
    change,
    contents,
    cut,
    fake_entry,
    get,
    gone,
    lab,
    made,
    put,
    run,
    sha,
)

NAMES = [
    "uploads/a",
    "\u00e9",
    "e\u0301",
    "new\nline",
    'q"uote',
    "-rf",
    "\u202ertl",
    "back\\slash",
    "😀/😀",
    "d/" * 63 + "x",
]


def test_uploads_of_every_name_are_there_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            for number, name in enumerate([*NAMES, "empty"]):
                data = b"" if name == "empty" else b"%d" % number * 1000
                entry = await put(space, name, data, mode=0o4755, modified_ns=5)
                assert entry == space.files[name]
                assert (entry.sha256, entry.size, entry.mode, entry.modified_ns) == (
                    sha(data),
                    len(data),
                    0o755,
                    5,
                )
            assert space.version == 0
            assert space.draft_seq == len(NAMES) + 1
            expected = await contents(space)
        async with lab(tmp_path) as at:
            found = await at.spaces.find("t", "a")
            assert found is not None
            assert await contents(found) == expected
            assert found.size_bytes == sum(map(len, expected.values()))
            assert found.draft_seq == len(NAMES) + 1

    run(scenario())


def test_replace_delete_and_preconditions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "a", b"1", if_absent=True)
            for options in ({"if_absent": True}, {"if_match": sha(b"2")}):
                with pytest.raises(PreconditionFailed):
                    await put(space, "a", b"3", **options)
            await put(space, "a", b"2", if_match=f"{sha(b'0')},{sha(b'1')}")
            await put(space, "a", b"3", if_match="*")
            with pytest.raises(PreconditionFailed):
                await put(space, "none", b"", if_match="*")
            with pytest.raises(PreconditionFailed):
                await space.delete("a", if_match=sha(b"1"))
            await space.delete("/workspace/a", if_match=sha(b"3"))
            with pytest.raises(NotFound):
                await space.delete("a")
            with pytest.raises(InvalidPath):
                await put(space, "../a", b"")
            assert dict(space.files) == dict((await at.again()).files) == {}
            assert at.staged() == []

    run(scenario())


def test_a_file_cannot_be_a_folder_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "a/b", b"")
            with pytest.raises(Conflict, match="is a folder"):
                await put(space, "a", b"")
            with pytest.raises(Conflict, match="is a file"):
                await put(space, "a/b/c", b"")
            with pytest.raises(Conflict, match="is a folder"):
                await space.delete("a")
            await space.delete("a/b")
            await put(space, "a", b"")

    run(scenario())


def test_ranges(tmp_path: Path) -> None:
    data = bytes(range(256)) * (CHUNK_BYTES // 128)

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "a", data)
            await put(space, "empty", b"")
            assert await get(space, "a", 3, CHUNK_BYTES + 3) == data[3 : CHUNK_BYTES + 3]
            assert await get(space, "a", len(data) - 1, len(data) + 50) == data[-1:]
            assert await get(space, "empty") == b""
            for path, start, end in [
                ("a", len(data), None),
                ("a", -1, None),
                ("a", 5, 4),
                ("empty", 1, None),
            ]:
                with pytest.raises(RangeNotSatisfiable):
                    await get(space, path, start, end)
            (at.files / "t" / "t" / "b" / space.files["a"].blob).write_bytes(b"short")
            with pytest.raises(StoreFailed):
                await get(space, "a")

    run(scenario())


def test_quota_of_bytes_and_of_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path, workspace_bytes=100, max_files=3, max_upload_bytes=90) as at:
            space = await at.space()
            await put(space, "a", bytes(80))
            with pytest.raises(QuotaExceeded, match="SANDBOX_WORKSPACE_SIZE") as caught:
                await put(space, "b", bytes(21))
            assert caught.value.fields == {"limit": 100, "used": 80}
            with pytest.raises(TooLarge):
                await put(space, "b", bytes(91))
            await put(space, "a", bytes(90))
            await put(space, "b", bytes(10))
            await put(space, "c", b"")
            with pytest.raises(QuotaExceeded, match="SANDBOX_WORKSPACE_FILES"):
                await put(space, "d", b"")
            big = await made(space, "big", b"x" * 50)
            with pytest.raises(QuotaExceeded):
                await space.commit([big], synced_seq=space.draft_seq, cause=RUN)
            with pytest.raises(QuotaExceeded):
                await space.commit([], synced_seq=space.draft_seq, cause=RUN, folders=["e"])
            assert space.version == 0
            assert len(at.staged()) == 0
            await space.commit([gone("a"), big], synced_seq=space.draft_seq, cause=RUN)
            assert space.size_bytes == 60
        async with lab(tmp_path, workspace_bytes=50) as at:  # lowered: it may shrink, not grow
            space = await at.space()
            await space.delete("b")
            await cut(space, "c", b"")
            with pytest.raises(QuotaExceeded):
                await put(space, "a", b"12")

    run(scenario())


def test_a_run_cuts_a_version_that_folds_what_it_has_seen(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "uploads/a", b"1")
            await put(space, "uploads/b", b"2")
            seen = space.draft_seq
            await put(space, "uploads/later", b"3")
            one = await made(space, "outputs/x", b"made")
            result = await space.commit(
                [one, gone("uploads/b")], synced_seq=seen, cause=RUN, links={"l": "outputs/x"}, folders=["e"]
            )
            assert (result.version, result.renamed, result.manifest.draft) == (1, {}, 2)
            assert set(result.manifest.files) == {"uploads/a", "outputs/x"}
            assert set(space.files) == {"uploads/a", "outputs/x", "uploads/later"}
            assert space.links == {"l": "outputs/x"}
            assert space.folders == {"e"}
            assert space.draft_seq == 3
            info = result.manifest.info
            assert info.changes == Counts(created=2)
            assert (info.base, info.cause, info.file_count) == (
                0,
                RUN,
                2,
            )
            again = await at.again()
            assert again.files == space.files
            assert again.links == space.links
            assert again.folders == space.folders
            assert (again.version, again.draft_seq, again.head) == (1, 3, space.head)

    run(scenario())


def test_without_a_change_no_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "a", b"1")
            same = change(space.files["a"])
            for changes in ([], [same], [gone("never was")]):
                result = await space.commit(changes, synced_seq=1, cause=RUN, links={}, folders=[])
                assert (result.version, space.version, result.renamed) == (0, 0, {})

    run(scenario())


def test_on_a_clash_the_upload_keeps_the_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "data.csv", b"old")
            seen = space.draft_seq
            one = await made(space, "data.csv", b"from the run")
            await put(space, "data.csv", b"uploaded during the run")
            result = await space.commit([one], synced_seq=seen, cause=RUN)
            assert result.renamed == {"data.csv": "data (run 1).csv"}
            expected = {"data.csv": b"uploaded during the run", "data (run 1).csv": b"from the run"}
            assert await contents(space) == await contents(await at.again()) == expected
            assert result.manifest.files["data.csv"].sha256 == sha(b"old")
            follow = await cut(space, "x", b"")
            assert follow.manifest.files == space.files

    run(scenario())


def test_a_run_that_started_from_an_older_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await cut(space, "a", b"1")
            await cut(space, "a", b"2")
            base = space.version
            mine = [await made(space, "a", b"from the run"), await made(space, "b", b"new")]
            await space.restore(1)
            result = await space.commit(mine, synced_seq=0, cause=RUN, base_version=base)
            assert result.renamed == {"a": "a (run 4)"}
            assert await contents(space) == {"a": b"1", "a (run 4)": b"from the run", "b": b"new"}

    run(scenario())


def test_restore(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await cut(space, "a", b"1")
            await cut(space, "a", b"2")
            await put(space, "up", b"3")
            result = await space.restore(1)
            assert result.version == 3
            assert result.manifest.cause == Cause("restore", version=1)
            assert result.manifest.info.changes == Counts(modified=1)
            assert await contents(space) == await contents(await at.again()) == {"a": b"1"}
            assert (await space.restore(1)).version == 3
            for missing in (9, -1):
                with pytest.raises(NotFound):
                    await space.restore(missing)

    run(scenario())


def test_a_blob_is_reused_only_within_a_conversation(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            first = await put(space, "a", b"same")
            assert (await put(space, "b", b"same")).blob == first.blob
            assert (await made(space, "c", b"same")).entry.blob == first.blob  # type: ignore[union-attr]
            other = await put(await at.space("other"), "a", b"same")
            assert other.blob != first.blob
            assert len(at.blobs()) == 2
            await space.commit([gone("a"), gone("b"), await made(space, "x", b"x")], synced_seq=2, cause=RUN)
            assert (await put(space, "d", b"same")).blob != first.blob  # only folded draft entries named it
            await cut(space, "e", b"kept by a version")
            named = space.files["e"].blob
            await space.commit([gone("e")], synced_seq=space.draft_seq, cause=RUN)
            assert (await put(space, "f", b"kept by a version")).blob == named
            again = await at.again()
            assert (await put(again, "g", b"kept by a version")).blob == named
            assert at.staged() == []

    run(scenario())


def test_a_superseded_upload_is_not_reused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            first = await put(space, "a", b"one")
            await put(space, "a", b"two")
            assert (await put(space, "b", b"one")).blob != first.blob

    run(scenario())


def test_what_a_sandbox_reports_is_checked(tmp_path: Path) -> None:
    good = fake_entry("a")

    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            for bad in (
                change(fake_entry("../a")),
                change(fake_entry("/a")),
                change(replace(good, blob="../../x")),
                change(replace(good, sha256="0" * 64)),
                change(replace(good, size=-1)),
                replace(change(good), path="b"),
                gone("a/"),
            ):
                with pytest.raises(ProtocolError):
                    await space.commit([bad], synced_seq=0, cause=RUN)
            with pytest.raises(ProtocolError):
                await space.commit([], synced_seq=0, cause=RUN, links={"../l": "x"})
            with pytest.raises(ProtocolError):
                await space.commit([], synced_seq=0, cause=RUN, folders=["e/"])
            await space.commit([change(replace(good, mode=0o6755))], synced_seq=99, cause=RUN)
            assert space.files["a"].mode == 0o755
            assert space.draft_seq == 0

    run(scenario())


def test_a_picture_of_the_files_does_not_change(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            await put(space, "a", b"")
            before = space.files
            assert space.files is before
            await put(space, "b", b"")
            assert set(before) == {"a"}
            assert set(space.files) == {"a", "b"}
            with pytest.raises(TypeError):
                before["c"] = before["a"]  # type: ignore[index]

    run(scenario())
