"""The pure parts of the image's own commands: pages and messages of ``typst``, completion of scenes, stubs."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest

from images.sandbox.commands import absent, excalidraw_scene, typst_files


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("2", 4, [2]),
        ("1,3-4", 5, [1, 3, 4]),
        ("3-", 5, [3, 4, 5]),
        ("-2", 5, [1, 2]),
        ("4,1", 5, [1, 4]),
        ("9", 3, []),
        (" 1 - 2 ", 3, [1, 2]),
    ],
)
def test_pages_are_chosen(text: str, count: int, expected: list[int]) -> None:
    assert typst_files.chosen(count, typst_files.page_ranges(text)) == expected


@pytest.mark.parametrize("text", ["", "0", "-", "a", "3-2", "1,,2", "1-2-3"])
def test_a_wrong_range_of_pages_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        typst_files.page_ranges(text)


def test_names_of_pages() -> None:
    assert typst_files.page_path("a-{p}.png", 3, 120) == "a-3.png"
    assert typst_files.page_path("a-{0p}-of-{t}.png", 3, 120) == "a-003-of-120.png"
    assert not typst_files.has_page_number("a-{t}.png")


def test_pictures_that_would_overwrite_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(typst_files.ManyPagesError, match="page number template"):
        typst_files.deliver([b"1", b"2"], "png", str(tmp_path / "a.png"), None)
    with pytest.raises(typst_files.ManyPagesError, match="to stdout"):
        typst_files.deliver([b"1", b"2"], "svg", "-", None)
    typst_files.deliver([b"1", b"2"], "png", str(tmp_path / "a.png"), [(2, 2)])
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.png", b"2")]


def test_short_messages_have_the_place_in_front() -> None:
    long = "error: unknown variable: foo\n  ┌─ a b.typ:2:1\n  │\n2 │ #foo\n  │  ^^^\n\nwarning: without a place\n"
    assert typst_files.short(long) == "a b.typ:2:1: error: unknown variable: foo\nwarning: without a place\n"


def test_a_scene_is_completed() -> None:
    scene = excalidraw_scene.completed(
        {
            "elements": [
                {"type": "text", "text": "ab\nc", "fontSize": 10, "width": None},
                {"type": "arrow", "points": [0, 0, 30, 0]},
                {"type": "arrow", "width": 5, "height": 7, "endArrowhead": None},
                {"type": "ellipse", "x": 10, "y": 10, "width": 100, "height": 40, "label": {"text": "in"}},
            ]
        }
    )
    text, arrow, plain, ellipse, label = scene["elements"]
    assert (text["id"], text["width"], text["height"]) == ("element-0", 11.0, 25.0)
    assert (arrow["points"], arrow["endArrowhead"]) == ([[0, 0], [30, 0]], "arrow")
    assert (plain["points"], plain["endArrowhead"]) == ([[0, 0], [5, 7]], None)
    assert (label["x"] + label["width"] / 2, label["y"] + label["height"] / 2) == (60, 30)
    assert ellipse["id"] == "element-3"


@pytest.mark.parametrize("data", [None, 3, {}, {"elements": {}}, {"elements": [1]}])
def test_what_is_no_scene_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="element"):
        excalidraw_scene.completed(data)


def test_stubs_answer_and_leave_what_is_there(tmp_path: Path) -> None:
    commands, modules = tmp_path / "bin", tmp_path / "site"
    commands.mkdir()
    modules.mkdir()
    (commands / "mutool").write_text("own\n")
    for _ in range(2):
        absent.place(commands, modules)
    done = subprocess.run([commands / "gs"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (127, "", absent.COMMANDS["gs"].line("gs") + "\n")
    assert (commands / "mutool").read_text() == "own\n"
    assert sorted(path.stem for path in modules.iterdir()) == sorted(absent.MODULES)
    assert all("'" not in entry.line(name) for name, entry in absent.COMMANDS.items())
