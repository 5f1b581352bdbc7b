"""A service on a copy of a data folder in use leaves the sandboxes of the original alone, whatever the backend."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import events
from tests.support.runner import Chat, running

RUN = """
import time
try:
    print('begun', flush=True)
    time.sleep(100)
except KeyboardInterrupt:
    print('to the end', x)
"""


@pytest.mark.parametrize("backend", ["bubblewrap", "unisolated"])
def test_a_run_goes_on_beside_a_service_on_a_copy(tmp_path: Path, backend: str) -> None:
    if backend == "unisolated" and shutil.which("proot") is None:
        pytest.skip("proot is not installed")
    env = {"SANDBOX_BACKEND": backend, "SANDBOX_ALLOW_UNISOLATED": "1"}
    notes = "run" if backend == "bubblewrap" else "run-unisolated"
    with running(tmp_path / "a", **env, SANDBOX_POOL_SIZE="1") as first, first.client() as http:
        chat = Chat(http)
        chat.ok("x = 7")
        with events.executing(chat, RUN) as answer:
            told = events.read(answer)
            assert any(name == "stdout" for name, _ in told)
            subprocess.run(["cp", "-a", tmp_path / "a", tmp_path / "b"], check=True)
            copied = {path.name for path in (tmp_path / "b" / notes).glob("*.json")}
            assert copied
            with running(tmp_path / "b", **env, SANDBOX_POOL_SIZE="0") as second:
                assert not copied & {path.name for path in (tmp_path / "b" / notes).glob("*.json")}
            assert "dead runner" not in second.log.read_text()  # whole, now that it has stopped
            events.interrupt(chat, answer.headers["x-execution-id"])  # it has gone on all the time
            (result,) = [data["result"] for name, data in told if name == "done"]
        assert (result["outcome"], result["stdout"]) == ("ok", "begun\nto the end 7\n")
        assert chat.ok("print(x)")["interpreter"] == "kept"
