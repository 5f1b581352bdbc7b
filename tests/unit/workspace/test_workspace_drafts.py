"""Draft entries as bytes: all forms come back, the old one is still read, and damage is named."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

import pytest

from runner.errors import StoreFailed, TooLarge
from runner.workspace import drafts, encoding, keys
from runner.workspace.drafts import DraftEntry
from tests.unit.workspace.workspace_lab import contents, fake_entry, memory_lab, put, run

HOME = keys.incarnation("t", "a", "000001")
KEY = keys.draft(HOME, 7)
FILE = fake_entry("ü/x\n", b"data", mode=0o600, modified_ns=-1)
ROW = ["a", 1, "0" * 64 + "-00000000", 420, 0]


@pytest.mark.parametrize(
    "entry",
    [
        DraftEntry(7, ((FILE.path, FILE),)),
        DraftEntry(7, (("gone", None), ("😀", None), (FILE.path, FILE))),
        DraftEntry(7, (("gone", None),), (("l\n", "../x"), ("m", "\ud800")), ("e", "f/g")),
        DraftEntry(7, tuple((f"n/{n}", fake_entry(f"n/{n}", b"%d" % n)) for n in range(3000))),
        DraftEntry(7, ()),
    ],
)
def test_entries_come_back(entry: DraftEntry) -> None:
    data = drafts.encode_draft(entry)
    assert drafts.decode_draft(data, KEY) == entry
    if len(entry.changes) > 1000:
        assert len(data) < 400_000


@pytest.mark.parametrize(("row", "entry"), [(None, None), (ROW, fake_entry("a"))])
def test_the_form_of_one_change_is_read(row: Any, entry: Any) -> None:
    if row:
        row = [entry.path, entry.size, entry.blob, entry.mode, entry.modified_ns]
    data = json.dumps({"format": 1, "seq": 7, "path": "a", "file": row}).encode()
    assert drafts.decode_draft(data, KEY) == DraftEntry(7, (("a", entry),))


def test_a_conversation_with_entries_of_that_form_goes_on() -> None:
    async def scenario() -> None:
        at, store = memory_lab()
        space = await at.space()
        old = await put(space, "old", b"1")
        for seq, path, file in ((1, "old", old), (2, "gone", None)):
            row = file and [file.path, file.size, file.blob, file.mode, file.modified_ns]
            document = {"format": 1, "seq": seq, "path": path, "file": row}
            store.objects_now[keys.draft(HOME, seq)] = json.dumps(document).encode()
        again = await at.again()
        await again.move("old", "new/old")
        assert await contents(await at.again()) == {"new/old": b"1"}

    run(scenario())


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"format": 3, "seq": 7, "changes": []},
        {"format": 2, "seq": 8, "changes": []},
        {"format": 2, "seq": True, "changes": []},
        {"format": 2, "seq": 7},
        {"format": 2, "seq": 7, "changes": None},
        {"format": 2, "seq": 7, "changes": ["../x"]},
        {"format": 2, "seq": 7, "changes": [""]},
        {"format": 2, "seq": 7, "changes": [7]},
        {"format": 2, "seq": 7, "changes": [["a"]]},
        {"format": 2, "seq": 7, "changes": [["/a", *ROW[1:]]]},
        {"format": 2, "seq": 7, "changes": [["a", -1, *ROW[2:]]]},
        {"format": 2, "seq": 7, "changes": [["a", 1, "../../x", 420, 0]]},
        {"format": 2, "seq": 7, "changes": [], "links": {"../x": "y"}},
        {"format": 2, "seq": 7, "changes": [], "links": {"x": 1}},
        {"format": 2, "seq": 7, "changes": [], "links": []},
        {"format": 2, "seq": 7, "changes": [], "folders": ["x/"]},
        {"format": 2, "seq": 7, "changes": [], "folders": 5},
        {"format": 1, "seq": 7, "path": "b", "file": ROW},
        {"format": 1, "seq": 7, "path": "../b", "file": None},
    ],
)
def test_what_cannot_be_is_refused(document: dict[str, Any]) -> None:
    plain = json.dumps(document).encode()
    for data in (plain, zlib.compress(plain)):
        with pytest.raises(StoreFailed) as caught:
            drafts.decode_draft(data, KEY)
        assert caught.value.fields["key"] == KEY


def test_damage_is_never_another_entry() -> None:
    """Bits flipped, pieces cut."""
    dice = random.Random(7)
    small = DraftEntry(7, (("gone", None), (FILE.path, FILE)), (("l", "x"),), ("e",))
    large = DraftEntry(7, tuple((f"n/{n}", fake_entry(f"n/{n}")) for n in range(200)))
    for turn in range(2000):
        entry = (small, large)[turn % 2]
        sound = drafts.encode_draft(entry)
        data = bytearray(sound)
        for _ in range(dice.randrange(1, 4)):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        if turn % 3 == 0:
            del data[dice.randrange(len(data)) :]
        if bytes(data) == sound:
            continue
        try:
            assert drafts.decode_draft(bytes(data), KEY) == entry  # a bit of zlib's head that means nothing
        except StoreFailed as error:
            assert error.fields["key"] == KEY  # noqa: PT017 - either may happen


def test_an_entry_that_could_not_be_read_back_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "MAX_DECODED_BYTES", 1000)
    with pytest.raises(TooLarge):
        drafts.encode_draft(DraftEntry(7, tuple((f"n/{n}", None) for n in range(500))))
    monkeypatch.setattr(encoding, "MAX_DECODED_BYTES", 1000)
    with pytest.raises(StoreFailed):
        drafts.decode_draft(zlib.compress(b" " * 2000), KEY)
