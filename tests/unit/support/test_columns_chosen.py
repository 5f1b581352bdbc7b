"""Which rows run: what was named, in the columns that ``ENGINES`` asks for and this host has."""

from __future__ import annotations

import os
import sys

import pytest

from tests import tiers
from tests.support.columns import COLUMNS, OFFERED, named, offered
from tests.support.engines.offer import Offer, offer, wanted

ENGINE_ONLY = {"ENGINES": "bubblewrap"}


def names(asked: list[str], environment: dict[str, str]) -> list[str]:
    return [row.name for row in tiers.chosen(asked, environment)]


def test_a_tier_runs_in_all_columns_and_a_row_in_its_own() -> None:
    assert names(["e2e"], {}) == ["e2e@bubblewrap", "e2e@docker-runc", "e2e@docker-runsc"]
    assert names(["e2e@docker-runsc", "unit"], {}) == ["unit", "e2e@docker-runsc"]
    assert names([], {}) == [row.name for row in tiers.ROWS]


def test_engines_can_be_left_out() -> None:
    left = names([], ENGINE_ONLY)
    assert "e2e@bubblewrap" in left and "contract" in left
    assert not [name for name in left if "docker" in name]


def test_every_column_has_its_end_to_end_and_hostile_rows() -> None:
    found = {row.name for row in tiers.ROWS}
    assert {f"{tier}@{column}" for tier in ("e2e", "hostile") for column in COLUMNS} <= found


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no such tier: e3e"):
        tiers.chosen(["e3e"], {})
    with pytest.raises(ValueError, match="no such column: podman"):
        wanted({"ENGINES": "podman"})


def test_an_unknown_tier_is_answered_with_the_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tiers", "bogus"])
    assert tiers.main() == 2
    assert "bogus; there are: unit, contract, integration, e2e@bubblewrap" in capsys.readouterr().err


def test_no_engine_is_started_for_rows_that_have_no_use_for_one() -> None:
    for asked in (["unit"], ["e2e@bubblewrap"], ["unit", "durability"]):
        assert tiers.engines_for(tiers.chosen(asked, {}), {})["ENGINES"] == "bubblewrap"
    for asked in (["contract"], ["integration"], ["e2e"]):
        assert "ENGINES" not in tiers.engines_for(tiers.chosen(asked, {}), {})


def test_without_an_engine_the_columns_are_named_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with offer({"HOME": "/nonexistent"}) as made:
        assert [column.name for column in made.columns] == ["bubblewrap"]
        assert set(made.left_out) == {"docker-runc", "docker-runsc"}
        assert offered(made.environment) == named("bubblewrap")
    told = capsys.readouterr().out
    assert "without docker-runsc: only root can start one" in told
    assert "apt-get install" in told and "docker.io" in told


def test_a_column_that_is_missing_fails_in_ci_only(capsys: pytest.CaptureFixture[str]) -> None:
    made = Offer(left_out={"docker-runc": "no engine"})
    row = next(row for row in tiers.ROWS if row.name == "e2e@docker-runc")
    outcomes = tiers.run_all([row], made)
    assert tiers.report(outcomes, made, strict=False)
    assert not tiers.report(outcomes, made, strict=True)
    assert "column docker-runc was left out, which CI does not allow: no engine" in capsys.readouterr().out


def test_all_columns_are_tried_where_nobody_looked() -> None:
    assert offered({}) == list(COLUMNS.values())
    assert offered({OFFERED: "docker-runc"}) == [COLUMNS["docker-runc"]]
