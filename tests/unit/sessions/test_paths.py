"""Paths of the sessions protocol: lexical first, then by the links of the workspace."""

from __future__ import annotations

import pytest

from runner.errors import InvalidPath
from runner.sessions.paths import NOT_UNDER, OUTSIDE, followed, resolve

LINKS = {
    "in": "outputs/deep",
    "up": "../outputs",
    "a/rel": "../outputs",
    "abs": "/workspace/outputs",
    "work": "/work/outputs",
    "out": "/etc",
    "loop": "loop",
    "one": "two",
    "two": "one",
    "here": ".",
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("a", "a"),
        ("/workspace/a/../b", "b"),
        ("/work/a", "a"),
        ("./a//b", "a/b"),
        ("in/x", "outputs/deep/x"),
        ("a/rel/x", "outputs/x"),
        ("abs", "outputs"),
        ("work/x", "outputs/x"),
        ("here/here/x", "x"),
        (" a ", " a "),
        ("...", "..."),
    ],
)
def test_inside(path: str, found: str) -> None:
    assert resolve(path, LINKS) == found


@pytest.mark.parametrize(
    "path", ["", ".", "/", "/workspace", "..", "a/../..", "/work/", "a/", "a/.", "//etc/x", "a\0", "x" * 9000]
)
def test_not_under(path: str) -> None:
    with pytest.raises(InvalidPath, match=NOT_UNDER):
        resolve(path, LINKS)


@pytest.mark.parametrize("path", ["up/x", "out", "out/passwd", "loop", "loop/x", "one", "here"])
def test_leads_outside(path: str) -> None:
    with pytest.raises(InvalidPath, match=OUTSIDE):
        resolve(path, LINKS)


def test_half_a_surrogate_pair_is_no_name() -> None:
    with pytest.raises(InvalidPath):
        resolve("uploads/\ud800", {})


def test_followed_tells_the_workspace_itself_from_nowhere() -> None:
    assert followed("here", LINKS) == ""
    assert followed("up", LINKS) is None
    assert followed("plain", {}) == "plain"
