"""Settings of the Docker backend, and what of the environment its daemon is named by."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner import __version__
from runner.backends.docker.config import DockerConfig
from runner.errors import ConfigurationError


def test_defaults(tmp_path: Path) -> None:
    config = DockerConfig.from_env({"SANDBOX_DATA_DIR": str(tmp_path), "DOCKER_HOST": "  "})
    assert (config.image, config.runtime, config.timeout_s) == (f"foliobox-sandbox:{__version__}", "auto", 30.0)
    assert config.data == tmp_path
    assert config.daemon == {}


def test_what_is_set() -> None:
    env = {
        "HOME": "/h", "SANDBOX_IMAGE": "mine:1", "SANDBOX_RUNTIME": "kata", "SANDBOX_DOCKER_TIMEOUT": "5",
        "DOCKER_HOST": "tcp://host:2376", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs", "DOCKER_CONFIG": "x",
    }  # fmt: skip
    config = DockerConfig.from_env(env)
    assert (config.image, config.runtime, config.timeout_s) == ("mine:1", "kata", 5.0)
    assert set(config.daemon) == {"DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"}


@pytest.mark.parametrize("value", ["0", "601", "x"])
def test_a_deadline_that_cannot_work(value: str) -> None:
    with pytest.raises(ConfigurationError, match="SANDBOX_DOCKER_TIMEOUT"):
        DockerConfig.from_env({"HOME": "/h", "SANDBOX_DOCKER_TIMEOUT": value})
