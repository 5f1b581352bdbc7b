"""The program that makes PNG twins, with programs beside it that take their time or refuse."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runner.tools import twins


@pytest.mark.parametrize(("drawing", "others"), [("exec sleep 60", False), ("exit 1", True)])
def test_after_one_that_does_not_end_in_time_no_other_is_tried(tmp_path: Path, drawing: str, others: bool) -> None:
    tried = tmp_path / "tried"
    for name, does in {"rsvg-convert": drawing, "vips": f"echo > {tried}; exit 1", "magick": "exit 1"}.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)
    source = tmp_path / "x.svg"
    source.write_text("<svg/>")
    code = twins.program(str(source), str(tmp_path / "x.png"), each_s=0.5)
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, timeout=30
    )
    assert (done.returncode, tried.exists()) == (3, others), done.stderr
