"""Limits as settings: defaults, what is refused, and room for files that end within a page."""

from __future__ import annotations

import pytest

from runner.errors import ConfigurationError, InvalidRequest
from runner.limits.config import Floors, LimitsConfig, QueueLimits
from runner.model import RunLimits, SandboxLimits

MIB = 1 << 20


def test_defaults() -> None:
    config = LimitsConfig.from_env({})
    assert config == LimitsConfig(SandboxLimits())
    assert config.run == RunLimits(64 << 10, 20_000, 512 * MIB)


def test_every_setting_is_read() -> None:
    config = LimitsConfig.from_env({
        "SANDBOX_MAX_QUEUE": "3", "SANDBOX_MAX_QUEUE_PER_CONVERSATION": "2", "SANDBOX_QUEUE_TIMEOUT_SECONDS": "1.5",
        "SANDBOX_MIN_FREE_MEMORY": "1g", "SANDBOX_MIN_FREE_DISK": "2g", "SANDBOX_MIN_FREE_PIDS": "7",
        "SANDBOX_MAX_STDIN_BYTES": "1k", "SANDBOX_MAX_ENV_BYTES": "2k", "SANDBOX_MAX_ARTIFACTS": "5",
        "SANDBOX_MAX_ARTIFACT_BYTES": "3m", "SANDBOX_WORKSPACE_FILES": "100", "SANDBOX_MAX_CODE_BYTES": "9",
    })  # fmt: skip
    assert (config.queue, config.floors) == (QueueLimits(3, 2, 1.5), Floors(1 << 30, 2 << 30, 7))
    assert (config.max_stdin_bytes, config.max_env_bytes, config.max_code_bytes) == (1024, 2048, 9)
    assert config.run == RunLimits(64 << 10, 5, 3 * MIB)
    assert config.sandbox.workspace_files == 100


def test_a_file_of_a_run_may_fill_the_workspace_by_default() -> None:
    config = LimitsConfig.from_env({"SANDBOX_WORKSPACE_SIZE": "100m"})
    assert config.max_artifact_bytes == config.sandbox.workspace_bytes == 100 * MIB


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"SANDBOX_MEMORY": "255m"}, "below 256m"),
        ({"SANDBOX_WORKSPACE_SIZE": "700m"}, "more than half"),
        ({"SANDBOX_WORKSPACE_FILES": "20001"}, "above 20000"),
        (
            {"SANDBOX_MEMORY": "300m", "SANDBOX_WORKSPACE_SIZE": "11m", "SANDBOX_TMPFS_SIZE": "11m"},
            "lower SANDBOX_WORKSPACE_FILES",
        ),
        ({"SANDBOX_MAX_QUEUE": "-1"}, "at least 0"),
        ({"SANDBOX_MIN_FREE_DISK": "none"}, "whole number of bytes"),
        ({"SANDBOX_CPUS": "1e9"}, "at most 1024"),
        ({"SANDBOX_CPUS": "0.04"}, "at least 0.05"),
        ({"SANDBOX_PIDS_LIMIT": "4194305"}, "at most 4194304"),
        ({"SANDBOX_EXEC_TIMEOUT_CAP_MS": "2000000001"}, "at most 2000000000"),
        ({"SANDBOX_MAX_OUTPUT_BYTES": "1023"}, "from 1024"),
        ({"SANDBOX_QUEUE_TIMEOUT_SECONDS": "1e8"}, "at most 31536000"),
    ],
)
def test_what_cannot_work_stops_the_start(env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        LimitsConfig.from_env(env)


def test_files_that_end_within_a_page_fit() -> None:
    limits = SandboxLimits()
    pages = limits.workspace_bytes + limits.rounding_bytes
    assert pages >= limits.workspace_bytes + limits.workspace_files * 4095


def test_the_time_of_a_run() -> None:
    config = LimitsConfig(SandboxLimits(), default_timeout_ms=10, timeout_cap_ms=20)
    assert [config.timeout_ms(asked) for asked in (None, 1, 20, 21)] == [10, 1, 20, 20]
    with pytest.raises(InvalidRequest):
        config.timeout_ms(0)
