"""Fixtures of all tiers: one service for a whole session, a conversation for each test."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.runner import Chat, Runner, running


@pytest.fixture(scope="session")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """The service that tests share; one that must be killed starts its own with ``running``."""
    with running(tmp_path_factory.mktemp("runner")) as service:
        health = httpx.get(f"{service.url}/healthz").json()
        assert health["ok"], f"no sandbox can be started here: {health['detail']}"
        yield service


@pytest.fixture(scope="session")
def http(runner: Runner) -> Iterator[httpx.Client]:
    """A client with the right key."""
    with runner.client() as client:
        yield client


@pytest.fixture
def chat(http: httpx.Client) -> Iterator[Chat]:
    """A conversation of its own, purged afterwards."""
    conversation = Chat(http)
    yield conversation
    conversation.purge()
