"""A run's changes on a workspace that moved on: the clash rule, and trees that stay consistent."""

from __future__ import annotations

import random
from typing import Any

import pytest

from runner.errors import FolioboxError
from runner.model import FileChange, FileEntry
from runner.workspace.drafts import DraftEntry
from runner.workspace.guards import Quota
from runner.workspace.merge import apply_run
from runner.workspace.paths import MAX_PATH_BYTES, is_canonical, parents
from runner.workspace.plans import plan_delete, plan_move, plan_puts
from runner.workspace.tree import Tree
from tests.unit.workspace.workspace_lab import change, fake_entry, gone


def tree(*paths: str, links: dict[str, str] | None = None, folders: tuple[str, ...] = ()) -> Tree:
    return Tree({path: fake_entry(path, b"base") for path in paths}, links or {}, folders)


def upload(path: str, seq: int = 1) -> DraftEntry:
    return DraftEntry(seq, ((path, fake_entry(path, b"upload")),))


def ran(path: str) -> Any:
    return change(fake_entry(path, b"run"))


def merged(target: Tree, changes: list[Any], newer: list[DraftEntry] | None = None, **more: Any) -> dict[str, str]:
    options: dict[str, Any] = {"foreign": (), "links": None, "folders": None, "run": 4, **more}
    return apply_run(target, changes, newer=newer or [], **options)


def test_without_a_clash_nothing_is_renamed() -> None:
    target = tree("a", "b", "c")
    assert merged(target, [ran("a"), gone("b"), ran("d")], [upload("e")]) == {}
    assert set(target.files) == {"a", "c", "d"}
    assert target.files["a"] == fake_entry("a", b"run")


@pytest.mark.parametrize(
    ("path", "renamed"),
    [
        ("outputs/report.pdf", "outputs/report (run 4).pdf"),
        ("README", "README (run 4)"),
        (".env", ".env (run 4)"),
        ("a.tar.gz", "a.tar (run 4).gz"),
        ("x/" + "n" * 251 + ".pdf", "x/" + "n" * 243 + " (run 4).pdf"),
        ("名" * 85, "名" * 82 + " (run 4)"),
    ],
)
def test_the_upload_keeps_the_name(path: str, renamed: str) -> None:
    target = tree(path)
    assert merged(target, [ran(path)], [upload(path)]) == {path: renamed}
    assert target.files[path].size == 4
    assert target.files[renamed] == fake_entry(renamed, b"run")
    assert is_canonical(renamed)


def test_long_paths_and_taken_names() -> None:
    path = "/".join(["d" * 200] * 5) + "/" + "n" * 10 + "." + "e" * 8
    assert len(path) == MAX_PATH_BYTES
    target = tree(path)
    (renamed,) = merged(target, [ran(path)], [upload(path)]).values()
    assert is_canonical(renamed)
    assert renamed.endswith(" (run 4)." + "e" * 8)
    taken = tree("a.txt", "a (run 4).txt", links={"a (run 4, 2).txt": "x"})
    assert merged(taken, [ran("a.txt")], [upload("a.txt"), upload("a (run 4, 3).txt", 2)]) == {
        "a.txt": "a (run 4, 4).txt"
    }


def test_the_same_content_is_no_clash() -> None:
    target = tree("a")
    same = fake_entry("a", b"same")
    assert merged(target, [change(same)], [DraftEntry(1, (("a", same),))]) == {}


def test_a_file_that_somebody_deleted_is_kept_under_a_new_name() -> None:
    target = tree("a")
    assert merged(target, [ran("a")], [DraftEntry(1, (("a", None),))]) == {"a": "a (run 4)"}


def test_another_version_keeps_the_name_and_is_not_deleted() -> None:
    target = tree("a", "b")
    assert merged(target, [ran("a"), gone("b")], foreign={"a", "b"}) == {"a": "a (run 4)"}
    assert set(target.files) == {"a", "a (run 4)", "b"}


@pytest.mark.parametrize(
    ("path", "newer", "renamed"),
    [
        ("a", "a/b", "a (run 4)"),
        ("a/b/c", "a", "a (run 4)/b/c"),
        ("x.d/y", "x.d", "x (run 4).d/y"),
    ],
)
def test_a_file_where_a_folder_came_and_the_reverse(path: str, newer: str, renamed: str) -> None:
    target = tree()
    assert merged(target, [ran(path)], [upload(newer)]) == {path: renamed}


def test_a_run_may_turn_a_file_or_a_link_into_a_folder_and_back() -> None:
    target = tree("a", "b/x", links={"l": "a", "k/l": "a"})
    changes = [ran("a/x"), gone("a"), ran("b"), gone("b/x"), ran("l/y"), ran("k")]
    assert merged(target, changes, links={}) == {}
    assert set(target.files) == {"a/x", "b", "l/y", "k"}
    assert not target.links


def test_links_and_folders_that_contradict_files_are_left_out() -> None:
    target = tree("a/x", "f")
    merged(
        target,
        [],
        links={"a": "1", "f": "2", "f/y": "3", "l": "4", "l/m": "5", "ok/l": "6"},
        folders={"a", "f", "f/z", "l/n", "e", "e/inner", "ok"},
    )
    assert dict(target.links) == {"l": "4", "ok/l": "6"}
    assert target.folders == {"e/inner"}


def test_an_upload_replaces_links_and_empty_folders() -> None:
    target = tree(links={"l": "x"}, folders=("e",))
    target.apply([upload("l"), upload("e", 2)])
    assert set(target.files) == {"l", "e"}
    assert not target.links
    assert not target.folders


def random_uploads(dice: random.Random, names: list[str], base: Tree) -> tuple[Tree, list[DraftEntry]]:
    """Uploads and deletions that the service would have taken, and the files with them."""
    current = base.copy()
    newer: list[DraftEntry] = []
    for name in dice.sample(names, 3):
        if current.get(name) is not None and dice.random() < 0.4:
            newer.append(DraftEntry(len(newer) + 1, ((name, None),)))
        elif current.blocking_parent(name) is None and not current.holds_below(name):
            newer.append(upload(name, len(newer) + 1))
        current.apply(newer[-1:])
    return current, newer


def random_run(dice: random.Random, names: list[str], base: Tree) -> list[FileChange]:
    """Changes that can be made to a folder that holds ``base``."""
    sandbox = base.copy()
    changes: list[FileChange] = []
    for name in dice.sample(names, 4):
        if sandbox.get(name) is not None and dice.random() < 0.4:
            changes.append(gone(name))
            sandbox.remove(name)
        elif sandbox.blocking_parent(name) is None and not sandbox.holds_below(name):
            changes.append(ran(name))
            sandbox.put(fake_entry(name, b"run"))
    return changes


def test_random_merges_leave_trees_that_can_exist() -> None:
    dice = random.Random(5)
    names = ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "b/b/b", "a.x", "a.x/b"]
    for _ in range(400):
        base = Tree({}, {}, ())
        for name in dice.sample(names, 4):
            if base.blocking_parent(name) is None and not base.holds_below(name):
                base.put(fake_entry(name, b"base"))
        current, newer = random_uploads(dice, names, base)
        changes = random_run(dice, names, base)
        target = base.copy()
        renamed = merged(target, changes, newer)
        assert_possible(target.files)
        final = target.copy()
        final.apply(newer)
        assert_possible(final.files)
        for one in changes:
            if one.entry is not None:
                assert final.files[renamed.get(one.path, one.path)].sha256 == one.entry.sha256
        for name, entry in current.files.items():
            if entry.sha256 == fake_entry("u", b"upload").sha256:
                assert final.files[name] == entry
        assert final.size_bytes == sum(entry.size for entry in final.files.values())
        assert all(final.is_folder(parent) for name in final.files for parent in parents(name))


def assert_possible(files: Any) -> None:
    for path in files:
        entry: FileEntry = files[path]
        assert entry.path == path
        assert not any(parent in files for parent in parents(path)), sorted(files)


NAMES = ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "b/b/b", "a.x", "a.x/b", "c"]


def random_tree(dice: random.Random, content: bytes) -> Tree:
    tree = Tree({}, {}, ())
    for name in dice.sample(NAMES, 6):
        if tree.blocking_parent(name) is None and not tree.is_folder(name):
            match dice.randrange(4):
                case 0:
                    tree.put_link(name, "x")
                case 1:
                    tree.put_folder(name)
                case _:
                    tree.put(fake_entry(name, content))
    return tree


def random_requests(dice: random.Random, base: Tree) -> tuple[Tree, list[DraftEntry]]:
    """What clients may ask for: many files, moves, folders deleted; and the workspace with it."""
    current, newer = base.copy(), list[DraftEntry]()
    quota = Quota(1 << 30, 1 << 20)
    for _ in range(4):
        one, other = dice.sample(NAMES, 2)
        try:
            match dice.randrange(4):
                case 0:
                    files = [fake_entry(name, b"upload") for name in (one, other)]
                    plan = plan_puts(current, files, quota)
                case 1:
                    plan = plan_delete(current, one, None, True)
                case _:
                    plan = plan_move(current, one, other, False, None)
        except FolioboxError:
            continue
        newer.append(plan.entry(len(newer) + 1))
        current.apply(newer[-1:])
    return current, newer


def test_random_requests_during_random_runs() -> None:
    """Whatever moved meanwhile stays where it was moved to, the run's files are all kept, the tree can exist."""
    dice = random.Random(6)
    clashes = moves = 0
    for _ in range(3000):
        base = random_tree(dice, b"base")
        current, newer = random_requests(dice, base)
        after = random_tree(dice, b"run")
        changes = [gone(name) for name in base.files if name not in after.files]
        changes += [change(entry) for entry in after.files.values()]
        target = base.copy()
        renamed = merged(target, changes, newer, links=dict(after.links), folders=after.folders)
        final = target.copy()
        final.apply(newer)
        for tree in (current, after, target, final):
            assert_whole(tree)
        for path in after.files:
            assert final.files[renamed.get(path, path)].sha256 == after.files[path].sha256
        for path in {entry.path for draft in newer for entry in draft.puts}:
            if path in current.files:
                assert final.files[path].sha256 in (
                    current.files[path].sha256,
                    after.files.get(path, ran(path).entry).sha256,
                )
        for path in {path for draft in newer for path, _ in draft.links} & current.links.keys():
            assert final.links[path] == current.links[path]
            moves += 1
        clashes += len(renamed)
        again = Tree(target.files, target.links, target.folders)  # as another process reads it
        again.apply(newer)
        assert (again.files, again.links, again.folders) == (final.files, final.links, final.folders)
    assert clashes > 1000
    assert moves > 100


def assert_whole(tree: Tree) -> None:
    """No thing lies below a file, a link or an empty folder, and what is counted is what is there."""
    things = [*tree.files, *tree.links, *tree.folders]
    assert len(set(things)) == len(things) == tree.entry_count
    for path in things:
        assert not any(parent in things for parent in parents(path)), sorted(things)
        assert all(tree.is_folder(parent) for parent in parents(path))
    assert tree.size_bytes == sum(entry.size for entry in tree.files.values())
    assert tree.names_bytes == sum(len(text.encode()) for text in (*things, *tree.links.values()))
    for path in NAMES:
        below = [name for name in (*tree.files, *tree.links) if name.startswith(path + "/")]
        assert tree.holds_below(path) == bool(below)
