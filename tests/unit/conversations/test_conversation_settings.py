"""Limits of one conversation: lower only, never too low for an interpreter, and folders that fit the memory."""

from __future__ import annotations

from typing import Any

import pytest

from runner.conversations.settings import MINIMUMS, ConversationSettings, OwnLimits, sandbox_limits
from runner.errors import InvalidRequest
from runner.limits.config import LimitsConfig
from runner.model import SandboxLimits

MIB = 1 << 20
CONFIG = LimitsConfig(SandboxLimits())
NONE = ConversationSettings()


def limited(**limits: Any) -> dict[str, Any]:
    """The six limits in effect."""
    return NONE.changed({"limits": limits}).effective(CONFIG, 1800.0).json()


def test_without_settings_the_deployment_decides() -> None:
    effective = NONE.effective(CONFIG, 1800.0)
    assert effective.sandbox == CONFIG.sandbox
    assert (effective.idle_ttl_ms, effective.timeout_ms, effective.output_bytes) == (1_800_000, 600_000, 64 << 10)


def test_lower_values_hold_and_higher_ones_are_lowered() -> None:
    low = {"memory_bytes": 1 << 30, "cpus": 0.5, "pids": 64, "workspace_bytes": 10 * MIB, "timeout_ms": 5000,
           "output_bytes": 2048}  # fmt: skip
    assert limited(**low) == low
    assert limited(**{name: value * 1000 for name, value in low.items()}) == NONE.effective(CONFIG, 1.0).json()


@pytest.mark.parametrize("name", MINIMUMS)
def test_too_low_is_refused_with_the_minimum(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name} must be at least {MINIMUMS[name]}"):
        limited(**{name: 0.01 if name == "cpus" else int(MINIMUMS[name]) - 1})
    limited(**{name: MINIMUMS[name] if name == "cpus" else int(MINIMUMS[name])})


@pytest.mark.parametrize("bad", [{"memory": 1}, {"pids": "64"}, {"pids": True}, {"pids": 64.5}, {"cpus": float("nan")}])
def test_what_is_no_limit_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        limited(**bad)


def test_each_setting_is_replaced_as_a_whole_and_none_puts_the_default_back() -> None:
    first = NONE.changed({"labels": {"a": "1"}, "limits": {"pids": 64, "cpus": 0.5}, "idle_ttl_ms": 5000})
    second = first.changed({"limits": {"pids": 32}})
    assert (second.labels, second.limits, second.idle_ttl_ms) == ({"a": "1"}, OwnLimits(pids=32), 5000)
    third = second.changed({"limits": None, "idle_ttl_ms": None, "labels": None})
    assert third == NONE


def test_idle_time_is_lower_only_and_at_least_a_second() -> None:
    assert NONE.changed({"idle_ttl_ms": 5000}).effective(CONFIG, 1800.0).idle_ttl_ms == 5000
    assert NONE.changed({"idle_ttl_ms": 10**12}).effective(CONFIG, 1800.0).idle_ttl_ms == 1_800_000
    with pytest.raises(InvalidRequest, match="at least 1000"):
        NONE.changed({"idle_ttl_ms": 999})


def test_network_is_off_unless_it_is_asked_for() -> None:
    assert NONE.changed({"network": False}) == NONE == NONE.changed({"network": None})
    granted = NONE.changed({"network": True})
    assert (granted.network, granted.json()["network"], granted.own()) == (True, True, {"network": True})
    assert ConversationSettings.stored(granted.json()) == granted
    assert ConversationSettings.stored({"network": "yes"}).network is False
    assert granted.changed({"labels": {}}).network is True
    assert granted.changed({"network": None}) == NONE


def test_what_is_stored_comes_back() -> None:
    settings = NONE.changed({"labels": {"a": "1"}, "limits": {"cpus": 0.5}, "idle_ttl_ms": 5000})
    assert ConversationSettings.stored(settings.json()) == settings
    assert ConversationSettings.stored({"labels": {"a": "1"}, "limits": {"later": 1}}).limits == OwnLimits()
    assert ConversationSettings.stored({}) == NONE


@pytest.mark.parametrize("memory", [256 * MIB, 300 * MIB, 512 * MIB, 1 << 30, (2 << 30) - 1])
def test_folders_in_memory_leave_half_of_it_to_programs(memory: int) -> None:
    box = sandbox_limits(OwnLimits(memory_bytes=memory), CONFIG.sandbox)
    folders = box.workspace_bytes + box.tmp_bytes + box.home_bytes + box.shm_bytes
    assert folders <= memory // 2
    assert folders + box.rounding_bytes <= memory * 3 // 4
    assert box.workspace_bytes >= memory // 4
    assert box.workspace_files > 10_000


def test_what_a_run_asks_of_its_sandbox() -> None:
    granted = NONE.changed({"network": True})
    assert [NONE.wants(None, True), granted.wants(None, False)] == [False, True]
    assert [granted.wants(wanted, None) for wanted in (True, False)] == [True, False]
    for has in (True, False):
        assert NONE.wants("keep", has) is granted.wants("keep", has) is has
    assert granted.wants("keep", None) is False
