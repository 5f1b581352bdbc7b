"""The three states of egress on ``/healthz``: proven, refuted, and unknown while nobody answers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.egress import EgressConfig
from tests.support.egress.world import World
from tests.support.runner import running


def told(data: Path, **env: str) -> tuple[int, dict[str, Any]]:
    with running(data, **{"SANDBOX_POOL_SIZE": "0", **env}) as service:
        answer = httpx.get(f"{service.url}/healthz")
        return answer.status_code, answer.json()


def test_with_the_engine_stopped_the_field_is_left_out(tmp_path: Path) -> None:
    nobody = {"SANDBOX_BACKEND": "docker", "DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    granted = {"SANDBOX_EGRESS_NETWORK": "foliobox-egress", "SANDBOX_EGRESS_PROXY": "http://egress:3128"}
    status, body = told(tmp_path / "one", **nobody, **granted)
    assert (status, "egress" in body) == (503, False)
    assert "not known" in body["egress_detail"]
    status, body = told(tmp_path / "two", **nobody)
    assert (status, body["egress"]) == (503, False)


@pytest.mark.parametrize(
    ("env", "word"),
    [
        ({}, "SANDBOX_EGRESS_PROXY is not set"),
        ({"SANDBOX_EGRESS_PROXY": "http://127.0.0.1:9"}, "does not answer"),
    ],
)
def test_without_a_proxy_that_answers_a_jail_has_no_egress(tmp_path: Path, env: dict[str, str], word: str) -> None:
    status, body = told(tmp_path, SANDBOX_BACKEND="bubblewrap", SANDBOX_EGRESS_NETWORK="granted", **env)
    assert (status, body["egress"]) == (200, False)
    assert word in body["egress_detail"]


def test_a_proxy_alone_grants_nothing(tmp_path: Path, outside: World) -> None:
    status, body = told(tmp_path, SANDBOX_BACKEND="bubblewrap", SANDBOX_EGRESS_PROXY=outside.proxy)
    assert (status, body["egress"], body["egress_detail"]) == (200, False, "SANDBOX_EGRESS_NETWORK is not set")


async def test_a_proxy_that_comes_up_and_goes_is_seen(tmp_path: Path, outside: World) -> None:
    config = BubblewrapConfig.from_env({**os.environ, "SANDBOX_DATA_DIR": str(tmp_path)})
    object.__setattr__(config, "egress", EgressConfig("granted", outside.proxy))
    backend = BubblewrapBackend(config)
    try:
        outside.stop_proxy()
        assert (await backend.probe()).egress is False
        assert await backend.renewed() is None
        outside.start_proxy()
        report = await backend.renewed()
        assert report is not None
        assert report.egress is True
        assert await backend.renewed() is None
        outside.stop_proxy()
        assert await backend.renewed() is None  # one look is not enough
        report = await backend.renewed()
        assert report is not None
        assert (report.egress, report.network.lost) == (False, True)
        outside.start_proxy()
        report = await backend.renewed()
        assert report is not None
        assert (report.egress, report.network.lost) == (True, False)
    finally:
        outside.start_proxy()
