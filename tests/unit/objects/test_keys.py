"""Names of objects: which are refused, where the others lie, which are collected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import StorageRejected
from runner.objects import keys

BAD = [
    "",
    "/",
    "/a",
    "a/",
    "..",
    "a/../b",
    "a..b",
    "a\0b",
    "a//b",
    ".",
    "./a",
    "a/./b",
    "a\nb",
    "\x7f",
    "\ud800",
    "x" * 1025,
]


@pytest.mark.parametrize("key", BAD)
def test_what_no_store_takes_as_one_name_is_refused(key: str) -> None:
    """With the contract's text, as a key and as a prefix."""
    with pytest.raises(StorageRejected, match=r"^invalid storage key$"):
        keys.full_key("workspaces", key)


@pytest.mark.parametrize(
    ("prefix", "key", "full"),
    [
        ("", "x", "workspaces/x"),
        ("workspaces/", "x", "workspaces/x"),
        ("a/b//", "x", "a/b/x"),
        ("workspaces/", "workspaces/x", "workspaces/x"),
        ("workspaces/", "workspaces/workspaces/x", "workspaces/workspaces/x"),
        ("workspaces/", "workspacesx", "workspaces/workspacesx"),
        ("workspaces/", "workspaces", "workspaces/workspaces"),
        ("p", "a b/c.pdf", "p/a b/c.pdf"),
    ],
)
def test_where_a_key_lies(prefix: str, key: str, full: str) -> None:
    """Below the prefix once."""
    assert keys.full_key(keys.normal_prefix(prefix), key) == full


def test_the_prefix_itself_is_no_object() -> None:
    """It is outside of what lies below it."""
    with pytest.raises(StorageRejected, match=r"^key outside storage prefix$"):
        keys.full_key("workspaces", "workspaces/")


@pytest.mark.parametrize("prefix", ["/a", "a/../b", "..", "a\0", "a//b"])
def test_a_prefix_is_checked_like_a_key(prefix: str) -> None:
    """It is the beginning of one."""
    with pytest.raises(StorageRejected):
        keys.normal_prefix(prefix)


@given(st.text(max_size=40), st.sampled_from(["workspaces", "a/b"]))
def test_a_whole_key_is_its_own_place(key: str, prefix: str) -> None:
    """F52: giving a key its place twice changes nothing, so put and delete mean the same object; it never leaves."""
    try:
        full = keys.full_key(prefix, key)
    except StorageRejected:
        return
    assert keys.full_key(prefix, full) == full
    assert full.startswith(prefix + "/") and ".." not in full and "//" not in full


def test_archives_lie_where_the_present_runner_puts_them() -> None:
    """With the default prefix the word comes twice."""
    assert keys.archive_key(keys.normal_prefix("workspaces/"), "c-1_A") == "workspaces/workspaces/c-1_A.tgz"
    assert keys.previous_key("p", "c") == "p/workspaces/c.previous.tgz"


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("p/workspaces/a.tgz", (True, "a")),
        ("p/workspaces/a.previous.tgz", (True, "a")),
        ("p/workspaces/a/b.tgz", (False, None)),
        ("p/workspaces/a.txt", (False, None)),
        ("p/mineru/a", (True, None)),
        ("p/mineru/a/b/c.json", (True, None)),
        ("p/mineru", (False, None)),
        ("p/other", (False, None)),
        ("workspaces/a.tgz", (False, None)),
    ],
)
def test_what_is_collected(key: str, found: tuple[bool, str | None]) -> None:
    """Archives directly in their folder, parsed documents at any depth."""
    assert keys.collected("p", key) == found
