"""A step of the build: what it shows, and what it says when it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from images.rootfs import progress


def step(tmp_path: Path, script: str) -> progress.Step:
    environment = {"PATH": os.environ.get("PATH", os.defpath)}
    return progress.Step("try", ["sh", "-c", script], tmp_path / "try.log", environment)


def test_success_leaves_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    progress.run(step(tmp_path, "echo one; echo two >&2"))
    assert (tmp_path / "try.log").read_text() == "one\ntwo\n"
    assert "try: done" in capsys.readouterr().out


def test_failure_shows_the_end_of_the_log_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(progress.StepError) as caught:
        progress.run(step(tmp_path, "seq 1 40; echo 'cp: write: No space left on device'; exit 3"))
    text = str(caught.value)
    assert "failed with code 3" in text
    assert "    40\n" in text
    assert "\n    5\n" not in text
    assert "FOLIOBOX_CACHE_DIR" in text


def test_death_by_signal_is_said(tmp_path: Path) -> None:
    with pytest.raises(progress.StepError, match="ended by signal 9"):
        progress.run(step(tmp_path, "kill -9 $$"))


def gone(pid: str) -> bool:
    """Whether the process is no more, or only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def test_a_killed_builder_takes_its_step_along(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"
    code = (
        "import os, pathlib; from images.rootfs import progress;"
        f"log = pathlib.Path({str(tmp_path / 'log')!r});"
        f"progress.run(progress.Step('try', ['sh', '-c', {script!r}], log, os.environ))"
    )
    repository = Path(progress.__file__).resolve().parents[2]
    builder = subprocess.Popen([sys.executable, "-c", code], cwd=repository, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not pids.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    builder.kill()
    builder.wait()
    while not all(gone(pid) for pid in pids.read_text().split()):
        assert time.monotonic() < deadline, "the step outlived its builder"
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "disk"),
        ("ssl.SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed", "PIP_CERT"),
        ("Err:1 http://mirror.test  Temporary failure resolving 'mirror.test'", "FOLIOBOX_DEBIAN_MIRROR"),
        ("E: Unable to locate package pandoc", "images/sandbox/apt"),
        ("ERROR: No matching distribution found for numpy==9", "PIP_INDEX_URL"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "lock"),
        ("newuidmap: uid range [0-1) -> [1000-1001) not allowed", "build.py host"),
    ],
)
def test_known_causes_are_recognised(line: str, word: str) -> None:
    assert word in progress.recognise(line)


def test_unknown_cause_is_not_guessed() -> None:
    assert progress.recognise("something odd") == ""


def test_last_lines_cut_carriage_returns_and_empty_lines(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a\n\nb\rc\n\xff\n")
    assert progress.last_lines(log, 3) == ["b", "c", "\ufffd"]
    assert progress.last_lines(tmp_path / "none", 3) == []


def test_sizes() -> None:
    assert progress.size_text(12_400_000) == "12 MB"
    assert progress.size_text(2_310_000_000) == "2.31 GB"
