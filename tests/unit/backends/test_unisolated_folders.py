"""Private folders on the host: where they lie, and that their removal touches nothing but them."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.backends.unisolated import folders
from runner.backends.unisolated.folders import remove_tree


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder with a canary in it, both of unusual modes that must stay."""
    parent = tmp_path / "parent"
    parent.mkdir()
    (parent / "canary").mkdir()
    (parent / "canary" / "file").write_text("x")
    (parent / "canary" / "file").chmod(0o641)
    (parent / "canary").chmod(0o751)
    parent.chmod(0o1773)
    yield parent
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (parent, parent / "canary", parent / "canary" / "file")]
    assert modes == [0o1773, 0o751, 0o641]
    assert os.listdir(parent) == ["canary"]
    assert (parent / "canary" / "file").read_text() == "x"


def fill(victim: Path, width: int = 1) -> None:
    """What hostile code leaves: closed folders, links out, files without rights."""
    victim.mkdir()
    for number in range(width):
        deep = victim / f"a{number}" / "b" / "c"
        deep.mkdir(parents=True)
        (victim / f"link{number}").symlink_to("../canary")
        (deep / "link").symlink_to("../../../../canary/file")
        (deep / "up").symlink_to("/")
        (deep / "closed").write_text("")
        (deep / "closed").chmod(0)
        deep.chmod(0)
        (victim / f"a{number}" / "b").chmod(0o500)
        (victim / f"a{number}").chmod(0)


def test_hostile_folders_are_removed_and_links_not_followed(place: Path) -> None:
    fill(place / "victim")
    assert remove_tree(place / "victim")
    assert remove_tree(place / "victim")


def test_two_at_once_are_both_content(place: Path) -> None:
    fill(place / "victim", 200)
    told: list[bool] = []
    threads = [threading.Thread(target=lambda: told.append(remove_tree(place / "victim"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == [True, True]


@pytest.mark.parametrize("target", ["canary", "canary/file", ".", "nowhere"])
def test_a_link_in_the_folders_place_goes_away_itself(place: Path, target: str) -> None:
    (place / "victim").symlink_to(target)
    assert remove_tree(place / "victim")


def test_a_file_in_the_folders_place_goes_away(place: Path) -> None:
    (place / "victim").write_text("")
    (place / "victim").chmod(0)
    assert remove_tree(place / "victim")


@pytest.mark.parametrize("what", ["rmdir", "unlink", "rename", "open"])
def test_what_cannot_be_removed_is_told_and_nothing_else_touched(
    place: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    fill(place / "victim")
    real = getattr(os, what)

    def refuse(path: object, *arguments: object, **named: object) -> object:
        if what == "open" and named.get("dir_fd") is None:
            return real(path, *arguments, **named)
        raise PermissionError(13, "refused")

    with monkeypatch.context() as patch:
        patch.setattr(os, what, refuse)
        patch.setattr(folders, "_PAUSE_S", 0.0)
        before = stat.S_IMODE((place / "victim").stat().st_mode)
        assert not remove_tree(place / "victim")
        assert stat.S_IMODE((place / "victim").stat().st_mode) == before
    assert remove_tree(place / "victim")


def test_depth_costs_no_descriptors_and_no_stack(place: Path) -> None:
    top = os.open(place, os.O_RDONLY)
    os.mkdir("victim", dir_fd=top)
    at = os.open("victim", os.O_RDONLY, dir_fd=top)
    os.close(top)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert remove_tree(place / "victim")


def test_a_place_that_is_closed_or_open_to_all_is_not_taken_for_another_uid(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert not folders.traversable(closed / "files")
    assert not folders.traversable(closed / "missing" / "files")
    assert folders.planned(closed / "files", "x", None).parent == closed / "files"
    assert folders.planned(closed / "files", "x", 7).parent != closed / "files"
    assert folders.traversable(Path("/"))
    assert folders.traversable(Path("/tmp/files"))
    closed.chmod(0o777)
    assert not folders.traversable(closed / "files")


def test_folder_belongs_to_the_runner_and_what_is_in_it_to_the_sandbox(tmp_path: Path) -> None:
    uid = 1_900_000_001 if os.geteuid() == 0 else None
    private = tmp_path / "files" / "one"
    folders.make(private, ("workspace", "proot"), uid)
    seen = [(path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) for path in (private, private / "proot")]
    assert seen == [(os.geteuid(), 0o711 if uid else 0o700), (uid or os.geteuid(), 0o700)]
    with pytest.raises(FileExistsError):
        folders.make(private, (), uid)
    assert remove_tree(private)


@pytest.mark.parametrize("named", [None, 1, "/tmp", "a/foliobox-unisolated-x-1", "/a/../foliobox-unisolated-x-1"])
def test_a_record_cannot_name_other_folders(named: object) -> None:
    assert folders.noted(named, "x") is None
    assert folders.noted("/tmp/foliobox-unisolated-x-1", "x") == Path("/tmp/foliobox-unisolated-x-1")


def test_only_what_that_proot_left_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PROOTS_OWN", tmp_path)
    gone = 1 << 30  # above every pid
    kept = {f"prooted-{gone}0-abcdef", f"prooted-{gone}-abcdef.x", f"prooted-{gone}-folder", f"prooted-{gone}-tolink"}
    (tmp_path / f"prooted-{gone}-folder").mkdir()
    (tmp_path / f"prooted-{gone}-tolink").symlink_to("/etc/passwd")
    for name in (f"prooted-{gone}0-abcdef", f"prooted-{gone}-abcdef.x", f"prooted-{gone}-aB3def"):
        (tmp_path / name).write_text("")
    folders.remove_glue(gone, os.geteuid() + 1)
    assert set(os.listdir(tmp_path)) == {*kept, f"prooted-{gone}-aB3def"}
    folders.remove_glue(gone, None)
    assert set(os.listdir(tmp_path)) == kept
    (tmp_path / f"prooted-{os.getpid()}-aB3def").write_text("")
    folders.remove_glue(os.getpid(), None)
    assert (tmp_path / f"prooted-{os.getpid()}-aB3def").exists()
