"""A host that refuses namespaces: nothing runs, unless the operator said so; then it works, and is told everywhere."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from runner.backends.unisolated.folders import PREFIX
from tests.support.runner import Chat, Runner, running

AUTO = {"SANDBOX_BACKEND": "auto", "SANDBOX_POOL_SIZE": "0", "DOCKER_HOST": "unix:///nonexistent/docker.sock"}
REFUSING = {**AUTO, "SANDBOX_BWRAP": "/bin/false"}
needs_proot = pytest.mark.skipif(shutil.which("proot") is None, reason="needs proot: apt-get install proot")


def health(runner: Runner) -> dict[str, object]:
    body: dict[str, object] = httpx.get(f"{runner.url}/healthz").json()
    return body


def test_auto_does_not_give_up_isolation_by_itself(tmp_path: Path) -> None:
    with running(tmp_path / "data", **REFUSING, SANDBOX_ALLOW_UNISOLATED="0") as runner:
        told = health(runner)
        assert (told["ok"], told["backend"]) == (False, "bubblewrap")
        assert "SANDBOX_ALLOW_UNISOLATED=1" in str(told["detail"])


def test_the_switch_changes_nothing_where_namespaces_work(tmp_path: Path) -> None:
    with running(tmp_path / "data", **AUTO, SANDBOX_ALLOW_UNISOLATED="1") as runner:
        told = health(runner)
        if not told["ok"] or told["backend"] == "unisolated":
            pytest.skip(f"bubblewrap cannot start a sandbox here: {told['detail']}")
        assert told["backend"] == "bubblewrap"


def ours(runner: Runner) -> list[Path]:
    """Private folders of this service's sandboxes: those its records name, and any beside them."""
    noted = [json.loads(path.read_text())["private"] for path in (runner.data / "run-unisolated").glob("*.json")]
    return [*map(Path, noted), *(runner.data / "run-unisolated-files").glob(f"{PREFIX}*")]


@pytest.fixture(scope="module")
def unisolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A service on a host whose bubblewrap refuses, with the switch set."""
    with running(tmp_path_factory.mktemp("bare") / "data", **REFUSING, SANDBOX_ALLOW_UNISOLATED="1") as runner:
        yield runner
    assert not ours(runner)


@needs_proot
def test_it_is_said_in_health_and_log(unisolated: Runner) -> None:
    told = health(unisolated)
    assert (told["ok"], told["backend"], told["isolation"]) == (True, "unisolated", "none")
    walls = told["walls"]
    assert isinstance(walls, dict)
    assert [name for name, stands in walls.items() if stands] == (["own-uid"] if os.geteuid() == 0 else [])
    assert "NO ISOLATION" in unisolated.log.read_text()


@needs_proot
def test_it_refuses_other_addresses_than_loopback(tmp_path: Path) -> None:
    from runner.api.keyring import Keyring
    from runner.app import check_exposure
    from runner.backends.base import BackendReport, Wall
    from runner.errors import ConfigurationError
    from runner.settings import Settings

    settings = Settings.from_env({"SANDBOX_BIND": "0.0.0.0:8000", "SANDBOX_API_KEY": "k", "HOME": str(tmp_path)})
    with pytest.raises(ConfigurationError, match="loopback only"):
        report = BackendReport("unisolated", True, "none", walls=(Wall("namespaces", False),))
        check_exposure(settings, report, Keyring(settings.api))


@needs_proot
def test_cells_see_the_usual_paths_and_files_come_back(unisolated: Runner) -> None:
    with unisolated.client() as http:
        chat = Chat(http)
        assert chat.put("uploads/in.txt", b"given").status_code in (200, 201)
        said = chat.ok(
            "import os, subprocess, numpy\n"
            "print(os.getcwd(), open('/workspace/uploads/in.txt').read(), os.path.exists('/etc/foliobox/image.json'))\n"
            "print(subprocess.run('ls /workspace; stat -c %s uploads/in.txt', shell=True, capture_output=True,"
            " text=True).stdout)\n"
            "open('/workspace/outputs/out.txt', 'w').write('made')"
        )
        assert said["stdout"].split() == [
            "/workspace",
            "given",
            "True",
            "downloads",
            "outputs",
            "skills",
            "uploads",
            "5",
        ]
        assert chat.get("outputs/out.txt").content == b"made"
        chat.ok("x = 41")
        assert (
            chat.ok(
                "print(x + 1)",
            )["stdout"]
            == "42\n"
        )
        chat.purge()


@needs_proot
def test_leftovers_of_a_run_and_of_the_sandbox_are_ended(unisolated: Runner) -> None:
    mark = "987654"
    with unisolated.client() as http:
        chat = Chat(http)
        chat.ok(f"import subprocess; subprocess.Popen('setsid sleep {mark} & sleep {mark}', shell=True)")
        assert sleeping(mark) == []
        chat.run("import os, signal; os.kill(os.getppid(), signal.SIGKILL)")
        assert chat.run("print(1)")["outcome"] in ("ok", "crashed", "lost")
        chat.purge()
    deadline = time.monotonic() + 10
    while ours(unisolated):
        assert time.monotonic() < deadline, "folders of an ended sandbox stay"
        time.sleep(0.05)


def sleeping(mark: str) -> list[str]:
    """Processes of the host that sleep for a telling time."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", mark.encode()]:
                found.append(name)
    return found
