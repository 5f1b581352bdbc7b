"""The proxy's image as compose.yaml runs it: in the internal network and in one that leads out, found by its name."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from runner import __version__
from tests.support.egress import needs
from tests.support.egress.attempts import attempts
from tests.support.egress.engine_network import engine_network
from tests.support.egress.world import ALLOWED, NAMES, RESOLVER, World, world
from tests.support.engines import docker
from tests.support.runner import Chat, running
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def image() -> str:
    if not os.environ.get("DOCKER_HOST"):
        pytest.skip("a Docker daemon that DOCKER_HOST names; .venv/bin/python -m tests.support.engines brings one")
    needs.ensure()
    build = [sys.executable, str(ROOT / "images/build.py"), "egress"]
    assert subprocess.run(build, check=False, timeout=600).returncode == 0
    return f"foliobox-egress:{__version__}"


@pytest.fixture
def outside(image: str) -> Iterator[World]:
    with world() as made:
        yield made


def posture() -> list[str]:
    """The flags of ``docker run`` for what the profile of compose.yaml says."""
    service: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["egress"]
    flags = ["--read-only"] if service["read_only"] else []
    for name, values in (("tmpfs", service["tmpfs"]), ("cap-drop", service["cap_drop"])):
        flags += [part for value in values for part in (f"--{name}", value)]
    flags += [part for value in service["security_opt"] for part in ("--security-opt", value)]
    flags += ["--memory", service["mem_limit"], "--pids-limit", str(service["pids_limit"])]
    return [*flags, "--ulimit", f"nofile={service['ulimits']['nofile']}"]


@pytest.mark.timeout(600)
def test_sandboxes_find_it_by_name_and_get_what_is_listed(image: str, outside: World, tmp_path: Path) -> None:
    name = f"fbx-proxy-{secrets.token_hex(3)}"
    with engine_network() as inside, engine_network(outside.outer, internal=False, place=1) as out:
        told = ["--env", f"EGRESS_ALLOW={NAMES}", "--env", f"EGRESS_DNS={RESOLVER}"]
        docker.docker("run", "--detach", "--name", name, "--network", out.name, *posture(), *told, image)
        try:
            docker.docker("network", "connect", inside.name, name)
            until(lambda: "Accepting HTTP" in _log(name), "the proxy takes connections")
            granted = {"SANDBOX_EGRESS_NETWORK": inside.name, "SANDBOX_EGRESS_PROXY": f"http://{name}:3128"}
            engine = {"SANDBOX_BACKEND": "docker", "SANDBOX_RUNTIME": "runc", "SANDBOX_KEEP_ON_STOP": "false"}
            with running(tmp_path, SANDBOX_POOL_SIZE="0", **granted, **engine) as service, service.client() as http:
                assert http.get("/healthz").json()["egress"] is True, http.get("/healthz").json()
                chat = Chat(http)
                found = attempts(
                    chat,
                    'through_proxy("http://allowed.test/")', 'tunnel("allowed.test", 443)',
                    'through_proxy("http://denied.test/")', 'through_proxy("http://private.test/")',
                    'through_proxy("http://169.254.169.254/")', 'tunnel("10.99.0.1", 443)', f'tcp("{out.gateway}", 22)',
                    f'tcp("{ALLOWED}", 80)', f'udp("{RESOLVER}")', 'lookup("allowed.test")', 'lookup("x.exfil.test")',
                )  # fmt: skip
                chat.purge()
            assert [status == 200 for status, _ in found] == [True, True, *[False] * 9]
            assert {hit["host"] for hit in outside.hits(kind="http")} == {"allowed.test", "allowed.test:443"}
            assert [hit for hit in outside.hits(kind="dns") if "exfil" in hit["name"]] == []
            decisions = [line for line in _log(name).splitlines() if "TCP_" in line]
            assert any("TCP_DENIED/403 GET http://denied.test/" in line for line in decisions)
            assert any("CONNECT allowed.test:443" in line and "/200" in line for line in decisions)
        finally:
            docker.docker("rm", "--force", "--volumes", name)


def _log(name: str) -> str:
    done = subprocess.run(["docker", "logs", name], check=False, capture_output=True, text=True)
    return done.stdout + done.stderr
