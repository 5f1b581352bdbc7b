"""Manifests and draft entries survive their encoding, and damage is an error that names the key."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.errors import StoreFailed
from runner.workspace import codec, drafts, encoding, keys
from runner.workspace.drafts import DraftEntry
from runner.workspace.manifest import Cause, Counts, Delta, Manifest, VersionInfo, difference, now
from tests.unit.workspace.workspace_lab import RUN, contents, cut, fake_entry, gone, lab, put, run

HOME = keys.incarnation("t", "a", "000001")


def manifest(version: int, files: dict[str, Any], **fields: Any) -> Manifest:
    base = version - 1 if version else None
    info = VersionInfo(
        version,
        base,
        now(),
        Cause("run", "x"),
        3,
        len(files),
        sum(f.size for f in files.values()),
        Counts(),
    )
    return Manifest(info, files, fields.get("links", {}), fields.get("folders", frozenset()))


def whole(version: int = 0) -> bytes:
    files = {"a": fake_entry("a")}
    one = manifest(version, files)
    return codec.encode_manifest(one, None, difference({}, files))


def test_names_of_every_kind_come_back() -> None:
    names = ["a\nb", 'q"q', "e\u0301", "\u00e9", "\u202ex", "😀", "back\\slash", "\x01\x7f"]
    files = {name: fake_entry(name, name.encode(), modified_ns=-5, mode=0o755) for name in names}
    made = manifest(32, files, links={"l\n": "../x"}, folders=frozenset({"empty\t"}))
    key = keys.version(HOME, 32)
    assert (
        codec.replay([(key, codec.decode_manifest(codec.encode_manifest(made, None, Delta((), (), Counts())), key))])
        == made
    )


@pytest.mark.parametrize("file", [None, fake_entry("ü/x", b"data", mode=0o600, modified_ns=1)])
def test_draft_entries_come_back(file: Any) -> None:
    entry = DraftEntry(7, (("ü/x", file),))
    assert drafts.decode_draft(drafts.encode_draft(entry), keys.draft(HOME, 7)) == entry


def test_ten_thousand_files_are_fast_and_a_small_change_is_small() -> None:
    files = {f"n/{i % 100}/{i}": fake_entry(f"n/{i % 100}/{i}", b"%d" % i) for i in range(10_000)}
    old = manifest(32, files)
    key = keys.version(HOME, 32)
    begun = time.perf_counter()
    data = codec.encode_manifest(old, None, difference({}, files))
    back = codec.replay([(key, codec.decode_manifest(data, key))])
    assert time.perf_counter() - begun < 2  # some 0.06 s on an idle machine
    assert back == old
    new = manifest(33, {**files, "one": fake_entry("one")})
    assert len(codec.encode_manifest(new, old, difference(old.files, new.files))) < 600


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda data: data[:-3],
    "empty": lambda data: b"",
    "flipped": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "garbage": lambda data: b"\x00" * 100,
    "trailing": lambda data: data + b"x",
    "not json": lambda data: zlib.compress(b"{"),
    "not an object": lambda data: zlib.compress(b"[]"),
    "deep": lambda data: zlib.compress(b"[" * 100_000),
    "another version": lambda data: whole(32),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_manifest_is_named(damage: str) -> None:
    key = keys.version(HOME, 0)
    assert codec.decode_manifest(whole(), key).put == (fake_entry("a"),)
    with pytest.raises(StoreFailed) as caught:
        codec.decode_manifest(DAMAGES[damage](whole()), key)
    assert caught.value.fields["key"] == key
    assert "v/000000000000.json" in caught.value.detail


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", 2),
        ("files", [["a"]]),
        ("files", [["../a", 1, "0" * 64 + "-00000000", 420, 0]]),
        ("files", [["a", -1, "0" * 64 + "-00000000", 420, 0]]),
        ("files", [["a", True, "0" * 64 + "-00000000", 420, 0]]),
        ("files", [["a", 1, "../../x", 420, 0]]),
        ("files", None),
        ("removed", [1]),
        ("links", {"../x": "y"}),
        ("links", []),
        ("folders", ["/x"]),
        ("cause", {"kind": "other"}),
        ("cause", None),
        ("draft", -1),
        ("changes", [1]),
    ],
)
def test_a_field_that_cannot_be_is_refused(field: str, value: object) -> None:
    document = json.loads(zlib.decompress(whole()))
    codec.decode_manifest(zlib.compress(json.dumps(document).encode()), keys.version(HOME, 0))
    document[field] = value
    with pytest.raises(StoreFailed):
        codec.decode_manifest(zlib.compress(json.dumps(document).encode()), keys.version(HOME, 0))


def test_a_bomb_is_not_inflated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_DECODED_BYTES", 1 << 20)
    bomb = zlib.compress(b" " * (2 << 20))
    for decode in (codec.decode_manifest, codec.decode_info, drafts.decode_draft):
        with pytest.raises(StoreFailed, match="damaged"):
            decode(bomb, keys.version(HOME, 0))


def test_a_chain_must_fit_together() -> None:
    first, second = (
        manifest(0, {"a": fake_entry("a")}),
        manifest(1, {"a": fake_entry("a"), "b": fake_entry("b")}),
    )
    one = codec.decode_manifest(whole(), "v/000000000000.json")
    data = codec.encode_manifest(second, first, difference(first.files, second.files))
    two = codec.decode_manifest(data, "v/000000000001.json")
    assert codec.replay([("k0", one), ("k1", two)]).files == second.files
    for chain in (
        [],
        [("k1", two)],
        [("k0", one), ("k2", replace(two, info=replace(two.info, version=2)))],
        [("k0", one), ("k1", replace(two, put=()))],
        [("k0", one), ("k1", replace(two, removed=("c",)))],
        [("k0", replace(one, info=replace(one.info, size_bytes=9)))],
    ):
        with pytest.raises(StoreFailed):
            codec.replay(chain)


def test_seventy_versions_of_which_three_are_whole(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            pictures = [await contents(space)]
            for number in range(1, 71):
                if number % 7 == 0:
                    path = sorted(space.files)[0]
                    await space.commit([gone(path)], synced_seq=0, cause=RUN)
                else:
                    await cut(space, f"outputs/{number % 11}", b"%d" % number)
                pictures.append(await contents(space))
            folder = at.files / keys.versions(HOME)
            stored = [json.loads(zlib.decompress(path.read_bytes())) for path in sorted(folder.iterdir())]
            assert [one["version"] for one in stored if one["whole"]] == [0, 32, 64]
            again = await at.again()
            assert again.version == 70
            assert await contents(again) == pictures[70]
            for number in (0, 1, 31, 32, 33, 63, 64, 69, 70):
                files = (await again.manifest(number)).files
                assert set(files) == set(pictures[number])
            infos = await again.versions(limit=1000)
            assert [info.version for info in infos] == list(range(70, -1, -1))
            assert infos[0].changes == Counts(deleted=1)
            assert infos[0].file_count == len(pictures[70])
            assert infos[1].cause == RUN
            assert infos[-1].cause == Cause("create")
            assert [info.version for info in await again.versions(after=64, limit=2)] == [63, 62]
            assert await again.versions(after=0) == []

    run(scenario())


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("newest", "damaged"),  # one that is lost whole cannot be told from one that never was
        ("between", "damaged"),
        ("between", "lost"),
        ("whole", "damaged"),
        ("whole", "lost"),
        ("draft", "damaged"),
        ("draft", "lost"),
    ],
)
def test_a_conversation_with_a_hole_is_an_error_and_never_empty(tmp_path: Path, what: str, how: str) -> None:
    async def scenario() -> None:
        async with lab(tmp_path) as at:
            space = await at.space()
            for number in range(3):
                await cut(space, "a", b"%d" % number)
            await put(space, "b", b"one")
            await put(space, "c", b"two")
            key = {
                "newest": keys.version(HOME, 3),
                "between": keys.version(HOME, 1),
                "whole": keys.version(HOME, 0),
                "draft": keys.draft(HOME, 1),
            }[what]
            path = at.files / key
            if how == "damaged":
                path.write_bytes(path.read_bytes()[:-1])
            else:
                path.unlink()
            with pytest.raises(StoreFailed) as caught:
                await at.again()
            assert key.partition("/c/")[2] in caught.value.detail

    run(scenario())
