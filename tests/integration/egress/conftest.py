"""The world of these tests: one for all of them, with squid in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.egress import needs
from tests.support.egress.world import World, world


@pytest.fixture(scope="session")
def whole_world() -> Iterator[World]:
    needs.ensure()
    with world() as made:
        yield made


@pytest.fixture
def outside(whole_world: World) -> World:
    """Nothing has been counted yet."""
    whole_world.forget()
    return whole_world
