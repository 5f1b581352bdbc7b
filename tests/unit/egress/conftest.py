"""Fixtures of the tests of the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.web import Web, reply
from tests.unit.egress.lab import Lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Of each test, its own."""
    with Web().running() as web, Web().running() as canary:
        web.pages["/a"] = reply(b"content")
        yield Lab(web, canary)
