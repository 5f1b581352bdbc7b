"""Which tiers count as passed."""

from __future__ import annotations

import sys

import pytest

from tests import tiers
from tests.tiers import Outcome

ALL_NEED_ROOT = ["test_a (needs root: it reads /proc)", "test_b (needs root: it reads /proc)"]


@pytest.mark.parametrize(
    ("strict", "root", "good"), [(False, False, True), (True, False, False), (False, True, False), (True, True, False)]
)
def test_a_tier_for_root_is_left_out_for_a_user_only(strict: bool, root: bool, good: bool) -> None:
    outcome = Outcome("hostile", 0, 0, ALL_NEED_ROOT, 1.0)
    assert outcome.left_out
    assert (not outcome.problems(strict, root)) is good


@pytest.mark.parametrize(
    ("passed", "failed", "skipped", "problem"),
    [
        (0, 1, ALL_NEED_ROOT, "1 failed"),
        (0, 0, [], "no test ran"),
        (0, 0, [*ALL_NEED_ROOT, "test_c (no proot)"], "no test ran"),
    ],
)
def test_other_tiers_without_a_pass_fail(passed: int, failed: int, skipped: list[str], problem: str) -> None:
    assert problem in Outcome("hostile", passed, failed, skipped, 1.0).problems(strict=False, root=False)


def test_an_unknown_tier_is_answered_with_the_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tiers", "bogus"])
    assert tiers.main() == 2
    assert "bogus; there are: unit, contract, integration, e2e, hostile" in capsys.readouterr().err
