"""Fixtures of the cases that every column passes: a shared service, and containers with hardly any wall as controls."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import sandboxes
from tests.support.columns import CHOSEN, RUNC, Column
from tests.support.engines import docker
from tests.support.runner import Runner

Bare = Callable[..., str]
PYTHON = "/opt/venv/bin/python"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Controls that need an engine are no tests of bubblewrap, which has its own; only with runc is a uid shared."""
    name = collection_path.name
    elsewhere = name == "test_controls.py" and not sandboxes.on_engine()
    return True if elsewhere or (name == "test_shared_uid.py" and os.environ.get(CHOSEN) != RUNC.name) else None


@pytest.fixture
def bare(column: Column, runner: Runner) -> Bare:
    """``bare(code, option, …)``: what code prints in a container of image and runtime with Docker's defaults."""
    image = os.environ.get("SANDBOX_IMAGE") or docker.lines("images", "--quiet", "foliobox-sandbox")[0]

    def run(code: str, *options: str) -> str:
        given = ("run", "--rm", "--runtime", column.runtime, "--network", "none", *options, image)
        return docker.docker(*given, PYTHON, "-c", code)

    return run
