"""The bytes of names and link targets: counted with every change, and bounded for runs, uploads and moves."""

from __future__ import annotations

import random

import pytest

from runner.errors import QuotaExceeded
from runner.workspace import guards
from runner.workspace.tree import Tree
from tests.unit.workspace.workspace_lab import RUN, fake_entry, memory_lab, put

NAMES = ["a", "a/b", "a/b/c", "ä", "ä/ß", "d" * 40, "d" * 40 + "/e", "f"]


def counted(tree: Tree) -> int:
    texts = [*tree.files, *tree.folders, *tree.links, *tree.links.values()]
    return sum(len(text.encode()) for text in texts)


def test_the_count_is_right_after_every_change() -> None:
    chance = random.Random(3)
    tree = Tree({}, {}, ())
    seen = set()
    for _ in range(3000):
        path = chance.choice(NAMES)
        kind = chance.randrange(6)
        if kind == 0 and tree.blocking_parent(path) is None and not tree.holds_below(path):
            tree.put(fake_entry(path))
        elif kind == 1:
            tree.put_link(path, chance.choice(NAMES))
        elif kind == 2:
            tree.put_folder(path)
        elif kind == 3:
            tree.remove(path)
        elif kind == 4:
            tree.set_shape(dict.fromkeys(chance.sample(NAMES, 2), "ü"), chance.sample(NAMES, 2))
        else:
            twin = tree.copy()
            twin.remove(path)
            assert twin.names_bytes == counted(twin)
        assert tree.names_bytes == counted(tree)
        seen.add(tree.names_bytes)
    assert Tree(tree.files, tree.links, tree.folders).names_bytes == tree.names_bytes
    assert len(seen) > 50


async def test_links_with_long_targets_are_refused_whole() -> None:
    at, store = memory_lab()
    space = await at.space()
    links = {f"{number:05}": "t" * 4000 for number in range(19_000)}
    objects = len(store.objects_now)
    with pytest.raises(QuotaExceeded, match="limit is 16777216"):
        await space.commit([], synced_seq=0, cause=RUN, links=links)
    assert (space.links, len(store.objects_now)) == ({}, objects)
    few = dict(list(links.items())[:4000])
    await space.commit([], synced_seq=0, cause=RUN, links=few)
    assert space.links == few


async def test_uploads_and_moves_are_bounded_and_what_is_above_may_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    at, _ = memory_lab()
    space = await at.space()
    monkeypatch.setattr(guards, "MAX_NAMES_BYTES", 40)
    await put(space, "d/" + "a" * 18, b"1")
    await put(space, "b", b"1")
    with pytest.raises(QuotaExceeded, match="limit is 40"):
        await put(space, "c" * 20, b"1")
    await put(space, "b", b"22")  # no new name
    with pytest.raises(QuotaExceeded, match="limit is 40"):
        await space.move("b", "b" * 21)
    with pytest.raises(QuotaExceeded, match="limit is 40"):
        await space.move("d", "d" * 21)
    monkeypatch.setattr(guards, "MAX_NAMES_BYTES", 5)
    await space.move("d", "e")
    await space.move("e/" + "a" * 18, "e/a")
    assert sorted(space.files) == ["b", "e/a"]
