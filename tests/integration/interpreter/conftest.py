"""One sandbox for all tests here that do not break it; each test gets a new interpreter and no files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.interpreter.jail import Jail, jail_at


@pytest.fixture(scope="session")
def shared_jail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jail]:
    """The sandbox behind ``jail``."""
    with jail_at(tmp_path_factory.mktemp("jail")) as jail:
        yield jail


@pytest.fixture
def jail(shared_jail: Jail) -> Jail:
    """A sandbox with a new interpreter and an empty workspace."""
    shared_jail.renew()
    return shared_jail
