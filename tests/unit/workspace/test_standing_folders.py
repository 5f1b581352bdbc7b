"""The folders that every workspace has are the same for the runner and for the agent, which share no code."""

from __future__ import annotations

from runner.agent.tree import STANDARD
from runner.workspace.paths import STANDING_FOLDERS


def test_both_sides_know_the_same_folders() -> None:
    assert set(STANDARD) == STANDING_FOLDERS
