"""compose.yaml, the systemd unit and the health check: valid, closed by default, and in step with the images."""

from __future__ import annotations

import configparser
import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from deploy import healthcheck
from images.containers import egress, sandbox, service
from runner import __version__
from runner.settings import known_names

ROOT = Path(__file__).resolve().parents[3]
UNIT = ROOT / "deploy/foliobox.service"
NEEDED = {"SANDBOX_API_KEY": "0123456789abcdef0123456789abcdef", "DOCKER_GID": "999"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file, without its variables put in."""
    return dict(yaml.safe_load((ROOT / "compose.yaml").read_text()))


def test_the_runner_is_closed_by_default(compose: dict[str, Any]) -> None:
    runner = compose["services"]["runner"]
    assert runner["read_only"] is True
    assert runner["cap_drop"] == ["ALL"]
    assert runner["security_opt"] == ["no-new-privileges:true"]
    assert runner["user"] == "10000:10000"
    assert "privileged" not in runner
    assert all(port.startswith("127.0.0.1:") for port in runner["ports"])
    assert {"mem_limit", "pids_limit", "ulimits"} <= set(runner)
    assert runner["volumes"][0] == "data:/var/lib/foliobox"
    assert [volume.rpartition(":")[2] for volume in runner["volumes"][1:]] == ["/var/run/docker.sock"]


def test_secrets_and_the_group_of_the_socket_have_no_default(compose: dict[str, Any]) -> None:
    runner = compose["services"]["runner"]
    assert runner["environment"]["SANDBOX_API_KEY"].startswith("${SANDBOX_API_KEY:?")
    assert [group[:15] for group in runner["group_add"]] == ["${DOCKER_GID:?s"]


def test_names_are_those_of_the_images_and_of_the_settings(compose: dict[str, Any]) -> None:
    runner, image = compose["services"]["runner"], compose["services"]["sandbox-image"]
    version = f"${{FOLIOBOX_VERSION:-{__version__}}}"
    assert runner["image"] == f"{service.NAME}:{version}"
    assert image["image"] == f"{sandbox.NAME}:{version}"
    assert runner["environment"]["SANDBOX_IMAGE"] == f"${{SANDBOX_IMAGE:-{image['image']}}}"
    assert set(runner["environment"]) <= known_names() | {"DOCKER_HOST"}
    assert image["build"]["args"]["IMAGE_HASH"].startswith("${FOLIOBOX_IMAGE_HASH:-")
    assert (image["profiles"], image["network_mode"]) == (["build"], "none")
    for built in (runner, image):
        assert (ROOT / built["build"]["dockerfile"]).is_file()


def test_settings_of_the_file_reach_the_runner_but_for_what_the_container_decides(compose: dict[str, Any]) -> None:
    runner = compose["services"]["runner"]
    assert runner["env_file"] == ".env"
    decided = {name: value for name, value in runner["environment"].items() if "${" not in value}
    baked = dict(re.findall(r"(SANDBOX_[A-Z_]+)=([^ \\\n]+)", (ROOT / "Dockerfile.runner").read_text()))
    assert decided == baked | {"DOCKER_HOST": "unix:///var/run/docker.sock"}
    assert decided["SANDBOX_DATA_DIR"] == runner["volumes"][0].partition(":")[2]


def test_the_network_for_egress_has_no_way_out_and_the_runner_is_not_in_it(compose: dict[str, Any]) -> None:
    assert compose["networks"]["egress"]["internal"] is True
    assert compose["services"]["runner"]["networks"] == ["front"]
    proxy = compose["services"]["egress"]
    assert (proxy["profiles"], proxy["networks"]) == (["egress"], ["egress", "out"])
    assert (proxy["cap_drop"], proxy["read_only"]) == (["ALL"], True)
    assert proxy["security_opt"] == ["no-new-privileges:true"]
    assert not {"ports", "volumes", "privileged", "env_file"} & set(proxy)
    assert proxy["image"] == f"{egress.NAME}:${{FOLIOBOX_VERSION:-{__version__}}}"
    assert proxy["environment"]["EGRESS_ALLOW"] == "${FOLIOBOX_EGRESS_ALLOW:-}"  # nothing, unless it is set


def test_compose_itself_takes_the_file(tmp_path: Path) -> None:
    """Where the plug-in is not there, the tests above have read the file already."""
    plugin = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False) if docker() else None
    if plugin is None or plugin.returncode != 0:
        return
    shutil.copy(ROOT / "compose.yaml", tmp_path)
    (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in NEEDED.items()))
    command = ["docker", "compose", "--file", str(tmp_path / "compose.yaml"), "--profile", "build", "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def docker() -> str | None:
    """The command line of Docker."""
    return shutil.which("docker")


def unit() -> configparser.RawConfigParser:
    """The unit, with the last of repeated lines."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(UNIT)
    return parser


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        return  # the test below reads it in any case
    copy = tmp_path / UNIT.name
    text = UNIT.read_text()
    copy.write_text(re.sub(r"(?m)^ExecStart=.*$", "ExecStart=/bin/true", text))
    done = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    copy.write_text(copy.read_text().replace("ProtectSystem=strict", "ProtectSystm=strict"))
    told = subprocess.run([analyze, "verify", str(copy)], capture_output=True, text=True, check=False).stderr
    assert "ProtectSystm" in told


def test_the_unit_leaves_jails_what_they_need() -> None:
    section = dict(unit()["Service"])
    assert section["Delegate"] == "yes"
    assert section["ExecStart"].endswith("foliobox serve")
    # Each of these keeps bubblewrap from making a jail, or the service from making control groups.
    closed = {"RestrictNamespaces", "ProtectProc", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups",
              "ProtectHostname", "PrivateUsers", "MemoryDenyWriteExecute", "User", "DynamicUser"}  # fmt: skip
    assert closed & set(section) == set()
    assert {"CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"} <= set(section["CapabilityBoundingSet"].split())
    assert "CAP_SYS_ADMIN" not in section["CapabilityBoundingSet"]
    # Longer than a stop takes by default; docs/operating.md says 25 s.
    assert int(section["TimeoutStopSec"]) > 25


@pytest.mark.parametrize(
    ("bind", "expected"),
    [
        ("0.0.0.0:8000", "http://127.0.0.1:8000/livez"),
        ("10.0.0.7:9", "http://10.0.0.7:9/livez"),
        ("[::]:80", "http://127.0.0.1:80/livez"),
    ],
)
def test_the_health_check_asks_where_the_service_listens(bind: str, expected: str) -> None:
    assert healthcheck.address(bind) == expected


@pytest.fixture(params=[200, 503])
def answering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A service that answers with one status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(request.param if self.path == "/livez" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("SANDBOX_BIND", f"0.0.0.0:{server.server_port}")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        yield request.param
        server.shutdown()
        thread.join()


def test_the_exit_code_is_the_answer(answering: int) -> None:
    assert healthcheck.main() == (0 if answering == 200 else 1)


def test_without_a_service_it_is_not_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_BIND", "127.0.0.1:1")
    assert healthcheck.main() == 1
