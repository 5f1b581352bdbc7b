"""What a run of the demo clears before it begins."""

from __future__ import annotations

from pathlib import Path

from runner.cli.demo.command import remove_pictures


def test_only_the_demos_own_pictures_go(tmp_path: Path) -> None:
    remove_pictures(tmp_path / "pages")
    for name in ("report.pdf-1.png", "deck.pptx-12.png", "holiday.png", "report.pdf-x.png", "notes.txt"):
        (tmp_path / name).write_text("")
    remove_pictures(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["holiday.png", "notes.txt", "report.pdf-x.png"]
