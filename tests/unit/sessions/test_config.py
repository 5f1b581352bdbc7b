"""Settings of the surface: its own name, then the bare one, then the protocol's default."""

from __future__ import annotations

import pytest

from runner.errors import ConfigurationError
from runner.sessions.config import IGNORED, SessionsConfig


def test_the_protocol_s_defaults() -> None:
    config = SessionsConfig.from_env({})
    assert (config.output_bytes, config.upload_bytes, config.code_bytes) == (32_768, 41_943_040, 1_048_576)
    assert (config.caps.file_bytes, config.caps.files, config.caps.total_bytes) == (20_971_520, 20, 52_428_800)
    assert (config.execs, config.creates, config.queue_s) == (4, 2, 150.0)
    assert (config.timeout_ms, config.timeout_cap_ms) == (120_000, 600_000)
    assert (config.idle_ttl_s, config.idle_cap_s, config.sweep_s) == (1800, 86_400, 300)
    assert (config.reset_gone_answer, config.fresh, config.advice()) == (True, False, [])


def test_its_own_name_goes_before_the_bare_one() -> None:
    env = {"SANDBOX_MAX_OUTPUT_BYTES": "10k", "SANDBOX_MAX_ARTIFACT_BYTES": "3m"}
    assert SessionsConfig.from_env(env).output_bytes == 10 << 10
    env["SANDBOX_SESSIONS_MAX_OUTPUT_BYTES"] = "20k"
    config = SessionsConfig.from_env(env)
    assert (config.output_bytes, config.caps.file_bytes) == (20 << 10, 3 << 20)


@pytest.mark.parametrize("value", ["0", "-1", "-4"])
def test_no_limit_of_places(value: str) -> None:
    env = {"SANDBOX_MAX_CONCURRENT_EXECS": value, "SANDBOX_MAX_CONCURRENT_CREATES": value}
    config = SessionsConfig.from_env(env)
    assert (config.execs, config.creates) == (0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SANDBOX_MAX_CONCURRENT_EXECS", "many"),
        ("SANDBOX_SESSIONS_RESET_ANSWER", "newest"),
        ("SANDBOX_SESSIONS_INTERPRETER", "sometimes"),
        ("SANDBOX_SESSIONS_MAX_UPLOAD_BYTES", "1gb"),
    ],
)
def test_what_cannot_be_used_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        SessionsConfig.from_env({name: value})


def test_what_means_nothing_is_told() -> None:
    told = SessionsConfig.from_env(dict.fromkeys(IGNORED, "1")).advice()
    assert len(told) == len(IGNORED)
