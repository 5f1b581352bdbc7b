"""Names in order, and trees that share what they hold until one of them changes."""

from __future__ import annotations

import random
import sys

from runner.workspace.manifest import difference
from runner.workspace.names import Names, ordered
from runner.workspace.tree import Tree
from tests.unit.workspace.workspace_lab import fake_entry

PATHS = ["a", "a!", "a/b", "a/b/c", "a/b/d", "a/bc", "a0", "a/é", "b", "b/" + "x" * 300, "z/\U0010ffff", "z/y"]


def test_order_is_that_of_sorted_however_many() -> None:
    dice = random.Random(1)
    for count in (0, 1, 2047, 2048, 2049, 9000):
        paths = [f"{dice.randrange(10**6)}/é{number}" for number in range(count)]
        assert ordered(paths) == sorted(paths)


def test_names_are_found_below_folders_and_in_pages() -> None:
    dice = random.Random(2)
    for _ in range(300):
        there = set(dice.sample(PATHS, dice.randrange(len(PATHS))))
        names = Names(there)
        twin = names.copy()
        for path in dice.sample(PATHS, 5):
            if path in there:
                names.remove(path)
                there.remove(path)
            else:
                names.add(path)
                there.add(path)
        assert len(names) == len(there)
        for folder in [*PATHS, "nothing"]:
            below = sorted(path for path in there if path.startswith(folder + "/"))
            assert names.below(folder) == below
            assert names.any_below(folder) == bool(below)
            assert names.count_below(folder) == len(below)
        for prefix in ("", "a", "a/", "a/b", "z/", "q"):
            for last in (None, "", "a/b", "a/b/c", "zz"):
                expected = [path for path in sorted(there) if path.startswith(prefix) and path > (last or "")]
                assert list(names.after(prefix, last)) == expected
        twin.add("q")
        assert "q" not in list(names.after("", None))


def test_copies_and_pictures_stay_as_they_are() -> None:
    dice = random.Random(3)
    for _ in range(200):
        tree = Tree({path: fake_entry(path) for path in ("a", "b/c")}, {"l": "a"}, {"e"})
        base = tree.files
        tree.rebase()
        kept = []
        for step in range(12):
            change(tree, dice, step)
            if dice.random() < 0.4:
                kept.append((tree.files, dict(tree.files), tree.links, dict(tree.links), tree.folders))
            if dice.random() < 0.3:
                old, tree = tree, tree.copy()
                before = shape(old)
                change(tree, dice, 100 + step)
                assert shape(old) == before
                if dice.random() < 0.5:
                    before = shape(tree)
                    change(old, dice, 200 + step)
                    assert shape(tree) == before
        for files, was, links, links_were, _ in kept:
            assert files == was
            assert links == links_were
        quick, full = tree.delta(base), difference(base, tree.files)
        assert sorted(quick.put, key=lambda entry: entry.path) == sorted(full.put, key=lambda entry: entry.path)
        assert (sorted(quick.removed), quick.counts) == (sorted(full.removed), full.counts)
        again = Tree(tree.files, tree.links, tree.folders)
        assert shape(again) == shape(tree)


def change(tree: Tree, dice: random.Random, step: int) -> None:
    path = dice.choice(("a", "b", "b/c", "b/d/e", "l", "e", "e/f", "g/h"))
    dice.choice((
        lambda: tree.put(fake_entry(path, b"%d" % step)),
        lambda: tree.put(fake_entry(path)),
        lambda: tree.remove(path),
        lambda: tree.put_link(path, f"to {step}"),
        lambda: tree.put_folder(path),
        lambda: tree.set_shape({path: "new"}, None),
        lambda: tree.set_shape(None, {path}),
    ))()  # fmt: skip


def shape(tree: Tree) -> tuple[object, ...]:
    """All that a tree says of itself."""
    listed = list(tree.copy().listed("", None))
    assert listed == sorted([*tree.files, *tree.links])
    below = [tree.below(path) for path in ("a", "b", "b/d", "e", "g")]
    return dict(tree.files), dict(tree.links), tree.folders, tree.size_bytes, tree.entry_count, below


def test_deep_paths_cost_no_memory_for_their_folders() -> None:
    """20,000 files, each below 60 folders of its own, are 1.2 million folders."""
    entries = {}
    for number in range(500):
        path = "/".join(f"{number}-{level}" for level in range(60))
        entries[path] = fake_entry(path)
    tree = Tree(entries, {}, ())
    assert tree.is_folder("7-0/7-1")
    assert not tree.is_folder("7-0/7")
    held = [value for value in vars(tree._names).values() if isinstance(value, list)]
    assert [len(value) for value in held] == [500]
    assert sum(map(sys.getsizeof, held)) < 10_000
