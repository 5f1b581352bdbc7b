"""All settings together: likely misspellings stop a start, foreign names pass, unsafe mixes are refused."""

from __future__ import annotations

import os

import pytest

from runner.api.config import ApiConfig
from runner.app import advice
from runner.backends.base import agent_environment
from runner.errors import ConfigurationError, InvalidRequest
from runner.limits.config import LimitsConfig
from runner.model import SandboxLimits
from runner.settings import Settings


@pytest.mark.parametrize("name", ["SANDBOX_MEMROY", "SANDBOX_MEMORYS", "SANDBOX_API_KEYY", "SANDBOX_BAKEND"])
def test_a_likely_misspelling_stops_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match="did you mean SANDBOX_"):
        Settings.from_env({name: "1"})


def test_other_unknown_names_are_kept_for_a_warning() -> None:
    env = {"SANDBOX_SOMETHING_OF_A_GATEWAY": "1", "SANDBOX_SERVICE_HOST": "x", "SANDBOX_PORT_80_TCP": "y", "PATH": "z"}
    assert Settings.from_env(env).unknown == ("SANDBOX_SOMETHING_OF_A_GATEWAY",)


@pytest.mark.parametrize(
    ("bind", "loopback"), [("127.0.0.1:1", True), ("localhost:1", True), ("[::1]:1", True), ("0.0.0.0:1", False)]
)
def test_serving_without_a_key_needs_loopback(bind: str, loopback: bool) -> None:
    config = ApiConfig.from_env({"SANDBOX_BIND": bind, "SANDBOX_ALLOW_NO_AUTH": "1"})
    assert config.loopback is loopback
    if loopback:
        config.check()
    else:
        with pytest.raises(ConfigurationError, match="SANDBOX_API_KEY"):
            config.check()


def test_a_key_never_shows_in_the_settings() -> None:
    assert "very-secret" not in repr(Settings.from_env({"SANDBOX_API_KEY": "very-secret"}))


@pytest.mark.parametrize("bind", ["8000", "host", "a:b", "127.0.0.1:99999", ":8000"])
def test_addresses_that_are_none(bind: str) -> None:
    with pytest.raises(ConfigurationError, match="SANDBOX_BIND"):
        ApiConfig.from_env({"SANDBOX_BIND": bind})


def test_folders_in_memory_may_take_half_of_it() -> None:
    with pytest.raises(ConfigurationError, match="SANDBOX_WORKSPACE_SIZE"):
        LimitsConfig.from_env({"SANDBOX_MEMORY": "1g"})
    limits = LimitsConfig.from_env(
        {"SANDBOX_MEMORY": "1g", "SANDBOX_WORKSPACE_SIZE": "128m", "SANDBOX_TMPFS_SIZE": "128m"}
    )
    assert limits.sandbox.memory_bytes == 1 << 30


def test_run_limits_are_clamped() -> None:
    limits = LimitsConfig.from_env({"SANDBOX_EXEC_TIMEOUT_CAP_MS": "1000"})
    assert (limits.timeout_ms(None), limits.timeout_ms(5), limits.timeout_ms(10**12)) == (1000, 5, 1000)
    with pytest.raises(InvalidRequest):
        limits.timeout_ms(0)


def test_a_likely_misspelling_of_a_tools_name_is_kept_for_a_warning() -> None:
    env = {"FOLIOBOX_CACHE_DIRS": "/x", "FOLIOBOX_OF_A_GATEWAY": "1", "FOLIOBOX_CACHE_DIR": "/y", "HOME": "/h"}
    settings = Settings.from_env(env)
    assert settings.misspelt == (("FOLIOBOX_CACHE_DIRS", "FOLIOBOX_CACHE_DIR"),)
    assert any("FOLIOBOX_CACHE_DIRS" in text for text in advice(settings, "bubblewrap"))


def test_a_pool_is_no_larger_than_all_sandboxes_and_that_is_told() -> None:
    env = {"SANDBOX_POOL_SIZE": "5", "SANDBOX_MAX_SESSIONS": "3", "SANDBOX_EGRESS_NETWORK": "n", "HOME": "/h"}
    settings = Settings.from_env(env)
    assert settings.conversations.spares == 3
    told = " ".join(advice(settings, "bubblewrap"))
    assert "SANDBOX_POOL_SIZE=5" in told
    assert "SANDBOX_EGRESS_NETWORK" in told
    assert advice(Settings.from_env({"HOME": "/h"}), "bubblewrap") == []


def test_threads_in_a_sandbox_are_no_more_than_cores() -> None:
    threads = agent_environment(SandboxLimits(cpus=1024))["OMP_NUM_THREADS"]
    assert threads == str(len(os.sched_getaffinity(0)))
