"""Which files an answer carries: in order, each cap by itself, through a link that `outputs` has become."""

from __future__ import annotations

from runner.conversations.result import Artifact
from runner.model import FileEntry
from runner.sessions.artifacts import collect, told
from runner.sessions.config import ArtifactCaps

CAPS = ArtifactCaps(file_bytes=100, files=3, total_bytes=150)


def made(path: str, size: int = 10) -> Artifact:
    return Artifact(path, "created", FileEntry(path, size, "0" * 64, ""))


def test_caps_are_judged_in_order_and_apart() -> None:
    files = [made("outputs/z", 1), made("outputs/a", 101), made("outputs/b", 100), made("outputs/c", 60)]
    files += [made("outputs/d", 50), made("outputs/e", 0), made("outputs/f", 0)]
    found = collect(files, {}, CAPS)
    assert [item.path for item in found.taken] == ["outputs/b", "outputs/d", "outputs/e"]
    reasons = {item.entry.path: item.reason for item in found.skipped}
    assert reasons == {
        "outputs/a": "file_bytes", "outputs/c": "total_bytes", "outputs/f": "files", "outputs/z": "files",
    }  # fmt: skip
    assert told(found.skipped, CAPS).startswith("skipped 4 output file(s) because artifact limits are 100 bytes a file")
    assert told([], CAPS) == ""


def test_only_outputs_and_only_what_is_there() -> None:
    gone = Artifact("outputs/gone", "deleted", None)
    assert collect([made("a"), made("uploads/b"), made("outputsx/c"), gone], {}, CAPS).taken == []


def test_a_link_in_its_place_is_followed() -> None:
    files = [made("elsewhere/a"), made("outputs2/b")]
    assert [item.path for item in collect(files, {"outputs": "elsewhere"}, CAPS).taken] == ["elsewhere/a"]
    assert collect(files, {"outputs": "/tmp"}, CAPS).taken == []
    assert len(collect(files, {"outputs": "."}, CAPS).taken) == 2
