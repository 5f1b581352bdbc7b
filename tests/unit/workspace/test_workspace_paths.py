"""Which names a workspace takes, from clients and from sandboxes."""

from __future__ import annotations

import pytest

from runner.errors import InvalidPath, InvalidRequest, ProtocolError
from runner.workspace import paths

KEPT = [
    "a",
    "outputs/x",
    "outputs/été.pdf",  # composed
    "outputs/e\u0301te\u0301.pdf",  # decomposed
    "שלום/مرحبا.docx",
    "a\nb",
    "quo\"te's",
    "-rf",
    "back\\slash",
    " leading and trailing ",
    "...",
    ".hidden",
    "名" * 85,
    "a" * 255,
    "tab\tbell\x07del\x7f",
    "workspace",
    "work/x",
    "%2e%2e",
    "😀.png",
    "/".join("d" * 64),
    "\u202egnp.exe",
]


@pytest.mark.parametrize("path", KEPT)
def test_unusual_names_are_kept_as_they_are(path: str) -> None:
    assert paths.normalise(path) == path
    assert paths.is_canonical(path)
    assert paths.check_reported(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "/workspace/outputs/x",
        "/work/outputs/x",
        "./outputs/x",
        "outputs/x",
        "outputs//x",
        "outputs/./x",
        "//work/outputs/x",
    ],
)
def test_spellings_of_one_file(path: str) -> None:
    assert paths.normalise(path) == "outputs/x"
    assert path == "outputs/x" or not paths.is_canonical(path)


def test_composed_and_decomposed_names_are_two_files() -> None:
    assert paths.normalise("\u00e9") != paths.normalise("e\u0301")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("", "empty"),
        ("..", "'..'"),
        ("a/../b", "'..'"),
        ("/workspace/../etc/passwd", "'..'"),
        ("a\0b", "NUL"),
        ("/etc/x", "/workspace/"),
        ("/", "/workspace/"),
        ("/workspaces/x", "/workspace/"),
        ("a/", "folder"),
        ("a/.", "folder"),
        ("/workspace", "names the workspace itself"),
        (".", "names the workspace itself"),
        ("a" * 256, "255"),
        ("名" * 86, "255"),
        ("/".join(["a" * 200] * 6), "1024"),
        ("a/" * 9000, "1024"),
        ("\ud800", "surrogate"),
        ("/".join("d" * 65), "63"),
    ],
)
def test_refused_paths_say_what_to_change(path: str, hint: str) -> None:
    with pytest.raises(InvalidPath) as caught:
        paths.normalise(path)
    assert hint in caught.value.detail
    caught.value.detail.encode()
    assert len(caught.value.detail) < 400
    assert not paths.is_canonical(path)


@pytest.mark.parametrize(
    "path", ["/workspace/a", "./a", "a//b", "a/", "..", "", "a/../b", "\udcff", "a\0", 7, None, b"a"]
)
def test_a_sandbox_must_report_canonical_paths(path: object) -> None:
    with pytest.raises(ProtocolError):
        paths.check_reported(path)


def test_hostile_names_do_not_reach_a_message_raw() -> None:
    with pytest.raises(InvalidPath) as caught:
        paths.normalise("/etc/\x1b[31m\n")
    assert "\x1b" not in caught.value.detail
    assert "\n" not in caught.value.detail


@pytest.mark.parametrize("name", ["a", "A.b-c_d", "0", "x" * 128])
def test_conversation_ids(name: str) -> None:
    assert paths.check_conversation_id(name) == name


@pytest.mark.parametrize("name", ["", ".", "..", "-a", "_a", ".a", "a/b", "a b", "é", "a\n", "x" * 129, "a\0"])
def test_refused_conversation_ids(name: str) -> None:
    with pytest.raises(InvalidRequest):
        paths.check_conversation_id(name)


def test_link_targets() -> None:
    assert paths.check_target("../anything/at all") == "../anything/at all"
    for bad in ("", "a\0", "x" * 4096, "\ud800", None):
        with pytest.raises(ProtocolError):
            paths.check_target(bad)


def test_prefixes() -> None:
    assert paths.normalise_prefix("/workspace/") == paths.normalise_prefix("") == ""
    assert paths.normalise_prefix("outputs") == paths.normalise_prefix("/work/outputs/") == "outputs/"
