"""``foliobox demo``: every file opens with another library, and every page has a picture that is not blank."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy
from PIL import Image
from pypdf import PdfReader

from runner.cli.demo.scenario import EXPECTED
from tests.support.runner import KEPT


def test_demo_makes_what_it_promises(tmp_path: Path) -> None:
    env = {name: os.environ[name] for name in KEPT if name in os.environ}
    command = [sys.executable, "-m", "runner", "demo", "--output", str(tmp_path / "out")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert {want.name for want in EXPECTED} <= made
    assert all(want.name in done.stdout for want in EXPECTED)
    pages = sorted((tmp_path / "out/pages").iterdir())
    assert len(pages) == 4 + 4 + 5 + 2 + 2
    for page in pages:
        assert numpy.asarray(Image.open(page).convert("L")).std() > 2, page.name
    report = PdfReader(tmp_path / "out/report.pdf")
    assert len(report.pages) == 4
    assert "中文摘要" in report.pages[3].extract_text()
