"""The cache of built trees: its place, the `current` link, what counts as a leftover."""

from __future__ import annotations

import os
import tarfile
import tempfile
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


def test_current_is_switched_in_one_step_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = cache.Cache(tmp_path / "c")
    place.prepare()
    for name in ("a" * 64, "b" * 64, "b" * 64):
        tree = place.tree(name)
        tree.mkdir(exist_ok=True)
        cache.point_current(place, tree)
        assert os.readlink(place.current) == name[:16]
        assert place.current.resolve() == tree
    assert [path.name for path in cache.other_trees(place)] == ["a" * 16]
    assert [line[: 19 + 16] for line in capsys.readouterr().out.splitlines()] == [
        f"`current` now names {letter * 16}"[:35] for letter in "ab"
    ]


def test_leftovers_are_unfinished_trees_only(tmp_path: Path) -> None:
    place = cache.Cache(tmp_path)
    place.prepare()
    (place.trees / "building-x-1").mkdir()
    place.tree("c" * 64).mkdir()
    cache.point_current(place, place.tree("c" * 64))
    with cache.build_lock(place):
        assert [path.name for path in cache.leftovers(place)] == ["building-x-1"]


def test_parts_of_archives_and_scratch_of_dead_builds_are_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = cache.Cache(tmp_path / "c")
    place.prepare()
    for name in ("trixie-x86_64.tar", "trixie-x86_64.part-7.tar", "trixie-x86_64.part.tar"):
        (place.base / name).write_text("")
    (tmp_path / "foliobox-base-999999999-x").mkdir()  # above the highest process id
    with cache.scratch([]) as mine:
        found = {path.name for path in cache.leftovers(place)}
        assert mine.is_dir()
    assert not mine.exists()
    assert found == {"trixie-x86_64.part-7.tar", "trixie-x86_64.part.tar", "foliobox-base-999999999-x"}


def test_only_a_whole_archive_of_debian_is_taken(tmp_path: Path) -> None:
    root, archive = tmp_path / "root", tmp_path / "base.tar"
    for name in ("etc/debian_version", "usr/bin/dpkg"):
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text("x" * 2000)
    with tarfile.open(archive, "w") as tar:
        tar.add(root, ".")
    whole = archive.read_bytes()
    assert cache.archive_fault(archive) == ""
    archive.write_bytes(whole[:2048])
    assert cache.archive_fault(archive)
    archive.write_bytes(whole.rstrip(b"\0"))
    assert cache.archive_fault(archive)
    with tarfile.open(archive, "w") as tar:
        tar.add(root / "etc", "./etc")
    assert cache.archive_fault(archive) == "it lacks usr/bin/dpkg"


def test_folders_on_the_way_to_a_tree_are_open_to_all(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        place = cache.Cache(tmp_path / "c")
        place.prepare()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (place.root, place.trees)] == [0o755, 0o755]
