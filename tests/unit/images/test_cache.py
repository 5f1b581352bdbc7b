"""The cache of built trees: its place, the `current` link, what counts as a leftover."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.rootfs import cache
from runner.preflight import Host


@pytest.mark.parametrize(
    ("environment", "user_id", "expected"),
    [
        ({"FOLIOBOX_CACHE_DIR": "/data/fb", "XDG_CACHE_HOME": "/x"}, 0, "/data/fb"),
        ({}, 0, "/var/cache/foliobox"),
        ({"XDG_CACHE_HOME": "/x"}, 1000, "/x/foliobox"),
        ({"XDG_CACHE_HOME": "relative"}, 1000, "/home/me/.cache/foliobox"),
        ({}, 1000, "/home/me/.cache/foliobox"),
    ],
)
def test_cache_root(environment: dict[str, str], user_id: int, expected: str) -> None:
    assert cache.cache_root(environment, user_id, Path("/home/me")) == Path(expected)


@pytest.mark.parametrize("environment", [{}, {"FOLIOBOX_CACHE_DIR": "/data"}, {"XDG_CACHE_HOME": "/x"}])
@pytest.mark.parametrize("root", [True, False])
def test_preflight_looks_at_the_same_place(environment: dict[str, str], root: bool) -> None:
    expected = cache.cache_root(environment, 0 if root else 1000, Path.home())
    assert Host(root=root, environment=environment).cache == expected


def test_current_is_switched_in_one_step(tmp_path: Path) -> None:
    place = cache.Cache(tmp_path / "c")
    place.prepare()
    for name in ("a" * 64, "b" * 64):
        tree = place.tree(name)
        tree.mkdir()
        cache.point_current(place, tree)
        assert os.readlink(place.current) == name[:16]
        assert place.current.resolve() == tree
    assert [path.name for path in cache.other_trees(place)] == ["a" * 16]


def test_leftovers_are_unfinished_trees_only(tmp_path: Path) -> None:
    place = cache.Cache(tmp_path)
    place.prepare()
    (place.trees / "building-x-1").mkdir()
    place.tree("c" * 64).mkdir()
    cache.point_current(place, place.tree("c" * 64))
    with cache.build_lock(place):
        assert [path.name for path in cache.leftovers(place)] == ["building-x-1"]


def test_folders_on_the_way_to_a_tree_are_open_to_all(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        place = cache.Cache(tmp_path / "c")
        place.prepare()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (place.root, place.trees)] == [0o755, 0o755]
