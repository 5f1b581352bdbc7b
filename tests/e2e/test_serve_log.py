"""What the log of a service says of its start and its stop, and what a start that is refused says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.hostile.support import outside
from tests.support.runner import Runner, running


def events(text: str) -> list[dict[str, object]]:
    """Lines of a log that are of the start and the stop."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("part") == "serve"]


def refused(service: Runner, **env: str) -> str:
    """What a start beside a service says that cannot be."""
    command = [sys.executable, "-P", "-m", "runner", "serve"]
    given = {**service.env, "SANDBOX_DATA_DIR": str(service.data), "SANDBOX_API_KEY": "k", **env}
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert events(done.stderr) == []
    return done.stderr.splitlines()[-1]


def test_start_and_stop_are_told(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="9", SANDBOX_MAX_SESSIONS="1") as service:
        with service.client() as http:
            assert http.get("/healthz").json()["pool"] | {"ready": 0} == {"ready": 0, "size": 1, "capped": True}
        outside.wait_for(lambda: bool(events(service.log.read_text())), "the log says where")
        assert [line["event"] for line in events(service.log.read_text())] == ["bound"]
        assert "1 spares are kept" in service.log.read_text()
        address = f"127.0.0.1:{service.port}"
        assert "in use by another program" in refused(service, SANDBOX_BIND=address)
        assert "in use by another runner" in refused(service, SANDBOX_BIND="127.0.0.1:0")
        assert "SANDBOX_LINK_SECRET" in refused(service, SANDBOX_LINK_SECRET="short", SANDBOX_BIND="127.0.0.1:0")
        os.kill(service.pid, 15)
        assert service.process is not None
        assert service.process.wait(30) == 0
        told = events(service.log.read_text())
        assert [line["event"] for line in told] == ["bound", "stopping", "stopped"]
        assert (told[0]["address"], told[1]["runs"]) == (service.url, 0)
