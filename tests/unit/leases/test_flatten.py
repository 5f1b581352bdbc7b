"""Flat names and the choice of files, against rules written down once more and simpler."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.leases.flatten import DEEPEST, MOST, choose, flat_names, walk_order, wanted

NAMES = st.sampled_from(["a", "b", "a-b", "a.txt", "b.txt", "a-b.txt", "a-b-2.txt", ".env", "a-b-2", "x.tar.gz"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
SIZES = st.dictionaries(PATHS, st.integers(0, 20), max_size=90)


@pytest.mark.parametrize(
    ("paths", "inputs", "expected"),
    [
        (["a.txt"], [], ["a.txt"]),
        (["a/b.txt"], [], ["a-b.txt"]),
        (["a-b.txt", "a/b.txt"], [], ["a-b.txt", "a-b-2.txt"]),
        (["a-b-2.txt", "a-b.txt", "a/b.txt"], [], ["a-b-2.txt", "a-b.txt", "a-b-3.txt"]),
        (["a/b.txt"], ["a-b.txt"], ["a-b-2.txt"]),
        (["a.txt"], ["a.txt"], ["a.txt"]),
        (["a/b"], ["a-b"], ["a-b-2"]),
        (["a/.env"], ["a-.env"], ["a--2.env"]),
        (["d/x.tar.gz"], ["d-x.tar.gz"], ["d-x.tar-2.gz"]),
    ],
)
def test_names(paths: list[str], inputs: list[str], expected: list[str]) -> None:
    assert list(flat_names(paths, inputs).values()) == expected


@given(st.lists(PATHS, unique=True, max_size=40), st.sets(NAMES))
def test_every_file_has_a_name_of_its_own(paths: list[str], inputs: set[str]) -> None:
    names = flat_names(paths, inputs)
    assert set(names) == set(paths)
    assert len(set(names.values())) == len(paths)
    for path, name in names.items():
        assert "/" not in name
        assert name not in ("", ".", "..")
        assert ("/" in path) or name == path
        assert name not in inputs or name == path


@given(SIZES, st.sets(NAMES), st.integers(1, 20), st.integers(0, 70))
def test_what_is_chosen(sizes: dict[str, int], inputs: set[str], largest: int, most: int) -> None:
    chosen = choose(sizes, inputs, largest, most)
    delivered = [path for _, path in chosen.files]
    assert delivered == sorted(delivered, key=walk_order)
    assert len(delivered) <= most
    good = {path for path, size in sizes.items() if wanted(path) and 0 < size <= largest}
    assert set(delivered) <= good
    assert chosen.truncated == (len(good) > most)
    assert chosen.truncated or set(delivered) == good
    assert all(not sizes[path] for path in chosen.empty)
    assert all(sizes[path] > largest for path in chosen.too_large)


def test_the_65th_file_ends_the_search() -> None:
    sizes = {f"f{number:03}": 1 for number in range(MOST + 1)}
    assert not choose(dict(list(sizes.items())[:MOST]), (), 10).truncated
    chosen = choose(sizes, (), 10)
    assert chosen.truncated
    assert [path for _, path in chosen.files] == [f"f{number:03}" for number in range(MOST)]


def test_top_level_comes_first_and_folders_in_order() -> None:
    paths = ["b/x", "z", "a/c/d", "a/z", "a/b"]
    assert sorted(paths, key=walk_order) == ["z", "a/b", "a/z", "a/c/d", "b/x"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/".join(["d"] * DEEPEST + ["f"]), True),
        ("/".join(["d"] * (DEEPEST + 1) + ["f"]), False),
        (".cache/f", False),
        ("a/.git/f", False),
        ("node_modules/f", False),
        ("a/__pycache__/f", False),
        ("site-packages/f", False),
        ("venv/f", False),
        ("venv", True),
        (".env", True),
        ("a/.env", True),
    ],
)
def test_folders_that_are_passed_over(path: str, expected: bool) -> None:
    assert wanted(path) is expected
    assert PurePosixPath(path).name
