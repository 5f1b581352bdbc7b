"""Limits that a host cannot hold are refused, those that leave no room are told, and doubtful ones are noted."""

from __future__ import annotations

import pytest

from runner.errors import ConfigurationError
from runner.limits import fit
from runner.limits.config import LimitsConfig

HOST = fit.Capacity(4 << 30, 32_768, 4096, 2000)


def test_more_open_files_or_processes_than_may_be_given() -> None:
    fit.check(LimitsConfig.from_env({"SANDBOX_NOFILE_ULIMIT": "4096"}), HOST)
    with pytest.raises(ConfigurationError, match="SANDBOX_NOFILE_ULIMIT=4097"):
        fit.check(LimitsConfig.from_env({"SANDBOX_NOFILE_ULIMIT": "4097"}), HOST)
    with pytest.raises(ConfigurationError, match="SANDBOX_PIDS_LIMIT=2001"):
        fit.check(LimitsConfig.from_env({"SANDBOX_PIDS_LIMIT": "2001"}), HOST)


@pytest.mark.parametrize(("name", "value"), [("SANDBOX_MIN_FREE_MEMORY", "4g"), ("SANDBOX_MIN_FREE_PIDS", "32768")])
def test_what_can_never_be_left_is_told(name: str, value: str) -> None:
    assert fit.too_little(LimitsConfig.from_env({}), HOST) == []
    (told,) = fit.too_little(LimitsConfig.from_env({name: value}), HOST)
    assert name in told


def test_more_memory_than_there_is_is_doubtful() -> None:
    assert fit.doubtful(LimitsConfig.from_env({"SANDBOX_MEMORY": "4g"}), HOST) == []
    (told,) = fit.doubtful(LimitsConfig.from_env({"SANDBOX_MEMORY": "5g"}), HOST)
    assert "SANDBOX_MEMORY" in told


def test_what_a_host_has_is_known_here() -> None:
    host = fit.Capacity.read()
    assert None not in (host.memory_bytes, host.pids, host.nofile)
