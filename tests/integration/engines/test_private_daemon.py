"""The private engine of the tests: alone on its folder, gone after its block, and cleaned up after by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.engines import daemon, docker, packages, processes
from tests.support.engines.daemon import Daemon

HOLD = """
import sys
from pathlib import Path
from tests.support.engines import daemon
with daemon.private(Path(sys.argv[1])) as made:
    print(made.folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A folder for an engine's data; nothing of the engine is left when the test is over."""
    if os.geteuid() != 0:
        pytest.skip("needs root: starts dockerd")
    if packages.on_path("dockerd") is None:
        pytest.skip("dockerd is not installed: tests.support.engines brings it")
    yield tmp_path / "home"
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def gone(made: Daemon | Path) -> bool:
    folder = made if isinstance(made, Path) else made.folder
    return not processes.belonging(folder) and not folder.exists()


def test_it_has_both_runtimes_and_is_gone_after_its_block(home: Path) -> None:
    with daemon.private(home) as made:
        assert {"runc", "runsc"} <= docker.runtimes(made.address)
        assert docker.lines("network", "ls", "--format", "{{.Driver}}", address=made.address) == ["host", "null"]
        assert processes.belonging(made.folder)
    assert gone(made)


def test_it_is_gone_after_a_failure_in_its_block(home: Path) -> None:
    with pytest.raises(ZeroDivisionError), daemon.private(home) as made:
        raise ZeroDivisionError
    assert gone(made)


def test_what_a_killed_run_left_is_ended_by_the_next_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", HOLD, str(home)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None and holder.stdin is not None
    folder = Path(holder.stdout.readline().strip())
    running = processes.belonging(folder)
    assert running
    for pid in running:  # so that the daemon cannot end in order when its holder is gone
        os.kill(pid, signal.SIGSTOP)
    holder.kill()
    holder.wait(10)
    holder.stdin.close()
    holder.stdout.close()
    assert processes.belonging(folder) == running
    with daemon.private(home) as made:
        assert gone(folder)
        assert docker.lines("ps", "--all", "--quiet", address=made.address) == []
    assert gone(made)
    assert f"ended the engine of a run that was killed ({folder})" in capsys.readouterr().out
