"""The services that the sessions kit is run against, and a conversation of either generation of the gateway."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.kit import Place
from tests.conformance.sessions.client import SessionsClient
from tests.conformance.sessions.gateway import Conversation
from tests.support.runner import running

LIMIT = 4096  # decoded bytes of a file where limits are tight
TIGHT = {
    "SANDBOX_MAX_CODE_BYTES": "2000",
    "SANDBOX_MAX_UPLOAD_BYTES": str(LIMIT),
    "SANDBOX_MAX_BODY_BYTES": "20000",
    "SANDBOX_MAX_STORAGE_BODY_BYTES": "40000",
    "SANDBOX_MAX_FILES_PER_EXEC": "3",
    "SANDBOX_MAX_ARTIFACT_BYTES": "1000",
    "SANDBOX_MAX_TOTAL_ARTIFACT_BYTES": "2500",
    "SANDBOX_EXEC_TIMEOUT_CAP_MS": "6000",
    "SANDBOX_DEFAULT_EXEC_TIMEOUT_MS": "2000",
}
CROWDED = {
    "SANDBOX_QUEUE_TIMEOUT_SECONDS": "1",
    "SANDBOX_MAX_CONCURRENT_EXECS": "2",
    "SANDBOX_EXEC_TIMEOUT_CAP_MS": "6000",
}


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service as it is by default, with a folder for the ``local`` storage provider."""
    storage = tmp_path_factory.mktemp("storage")
    with running(tmp_path_factory.mktemp("sessions"), SANDBOX_LOCAL_STORAGE_DIR=str(storage)) as service:
        yield Place(service.url, service.key, storage)


@pytest.fixture(scope="session")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service whose limits are small, by their names of section 4.1."""
    with running(tmp_path_factory.mktemp("tight"), **TIGHT) as service:
        yield Place(service.url, service.key)


def client_of(place: Place, later: bool = True, exec_s: int = 120) -> SessionsClient:
    """A client of one generation."""
    return SessionsClient(place.url, place.key, exec_s, later)


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service with two places for runs, where nobody waits longer than a second."""
    with running(tmp_path_factory.mktemp("crowded"), **CROWDED) as service:
        yield Place(service.url, service.key)


@pytest.fixture
def client(place: Place) -> Iterator[SessionsClient]:
    """The later client on the default service."""
    made = client_of(place)
    yield made
    made.close()


@pytest.fixture
def small(tight: Place) -> Iterator[SessionsClient]:
    """The later client where limits are tight."""
    made = client_of(tight)
    yield made
    made.close()


@pytest.fixture
def session(client: SessionsClient) -> Iterator[str]:
    """A session of its own on the default service."""
    made = client.create()
    yield made
    client.delete(made, discard=True)


@pytest.fixture
def narrow(small: SessionsClient) -> Iterator[str]:
    """A session of its own where limits are tight."""
    made = small.create()
    yield made
    small.delete(made, discard=True)


@pytest.fixture(params=[False, True], ids=["base", "later"])
def talk(request: pytest.FixtureRequest, place: Place) -> Iterator[Callable[..., Conversation]]:
    """Makes conversations of one generation of the gateway; they are cleared afterwards."""
    made: list[Conversation] = []

    def begin(**fields: object) -> Conversation:
        client = client_of(place, later=request.param)
        made.append(Conversation(client, f"conv-{secrets.token_hex(6)}", **fields))  # type: ignore[arg-type]
        return made[-1]

    yield begin
    for conversation in made:
        if conversation.sandbox_id:
            conversation.clear()
        conversation.client.close()
