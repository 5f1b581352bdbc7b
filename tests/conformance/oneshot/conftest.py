"""The services that the one-shot kit is run against, open on loopback as that gateway needs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.kit import Place
from tests.conformance.oneshot.client import OneshotClient
from tests.conformance.oneshot.gateway import Turn
from tests.support.runner import running

OPEN = {"SANDBOX_ONESHOT_AUTH": "none"}
TIGHT = {
    "SANDBOX_MAX_CONCURRENT": "1",
    "SANDBOX_MAX_LEASES": "1",
    "SANDBOX_TIMEOUT_SECS": "3",
    "SANDBOX_MAX_TIMEOUT_SECS": "4",
    "SANDBOX_ONESHOT_MAX_OUTPUT_BYTES": "2000",
}


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service as it is by default."""
    with running(tmp_path_factory.mktemp("oneshot"), **OPEN) as service:
        yield Place(service.url)


@pytest.fixture(scope="session")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service whose limits are small, by their names of section 3."""
    with running(tmp_path_factory.mktemp("oneshot-tight"), **OPEN, **TIGHT) as service:
        yield Place(service.url)


@pytest.fixture
def client(place: Place) -> Iterator[OneshotClient]:
    """The client on the default service."""
    made = OneshotClient(place.url)
    yield made
    made.close()


@pytest.fixture
def small(tight: Place) -> Iterator[OneshotClient]:
    """The client where limits are tight."""
    made = OneshotClient(tight.url)
    yield made
    made.close()


@pytest.fixture
def brief(tmp_path: Path) -> Iterator[OneshotClient]:
    """The client of a service with one lease, which is idle for two seconds at most."""
    with running(tmp_path / "brief", **OPEN, SANDBOX_MAX_LEASES="1", SANDBOX_LEASE_TTL_SECS="2") as service:
        made = OneshotClient(service.url)
        yield made
        made.close()


@pytest.fixture
def turn(client: OneshotClient) -> Iterator[Turn]:
    """One turn of a chat, ended with the test."""
    made = Turn(client)
    yield made
    made.end()
