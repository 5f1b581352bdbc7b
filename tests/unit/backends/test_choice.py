"""What ``auto`` chose once is not weakened silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.backends.base import BackendReport, Wall
from runner.backends.choice import Choice, strength
from runner.errors import ConfigurationError

MISSING = (Wall("own-uid", False),)
FROM_WEAK = [
    BackendReport("unisolated", True, "none", walls=MISSING),
    BackendReport("bubblewrap", True, "shared-kernel", walls=MISSING),
    BackendReport("docker", True, "shared-kernel", runtime="runc"),
    BackendReport("docker", True, "separate-kernel", runtime="runsc"),
]


def test_the_order() -> None:
    assert [strength(report) for report in FROM_WEAK] == [0, 1, 2, 3]


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("later", range(4))
def test_a_later_start_may_only_be_as_strong_or_stronger(tmp_path: Path, first: int, later: int) -> None:
    Choice(tmp_path / "data").settle(FROM_WEAK[first])
    if later >= first:
        Choice(tmp_path / "data").settle(FROM_WEAK[later])
    else:
        with pytest.raises(ConfigurationError, match="SANDBOX_BACKEND"):
            Choice(tmp_path / "data").settle(FROM_WEAK[later])


def test_the_strongest_counts(tmp_path: Path) -> None:
    for number in (1, 3):
        Choice(tmp_path).settle(FROM_WEAK[number])
    with pytest.raises(ConfigurationError, match="a kernel of its own"):
        Choice(tmp_path).settle(FROM_WEAK[2])


@pytest.mark.parametrize("content", ["", "[]", '{"strength": true}', '{"strength": 9}', "\x00"])
def test_a_damaged_record_is_no_record(tmp_path: Path, content: str) -> None:
    (tmp_path / "isolation.json").write_text(content)
    Choice(tmp_path).settle(FROM_WEAK[0])
