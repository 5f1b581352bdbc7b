"""Fixtures of the proofs: a line for each proof that is seen although it passed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Tell = Callable[[str], None]


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest) -> Tell:
    """Print what a proof counted, past pytest's capture."""

    def line(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {request.node.originalname or request.node.name}: {text}", flush=True)

    return line
