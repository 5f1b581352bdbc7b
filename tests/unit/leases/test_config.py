"""Names of the one-shot surface: its own first, then those of its protocol in their units."""

from __future__ import annotations

import pytest

from runner.errors import ConfigurationError
from runner.leases.config import LeasesConfig
from runner.settings import Settings


def test_defaults_of_the_protocol() -> None:
    config = LeasesConfig.from_env({})
    assert (config.concurrent, config.leases, config.lease_ttl_s) == (6, 6, 600.0)
    assert (config.timeout_s, config.max_timeout_s, config.output_bytes) == (60, 300, 131_072)
    assert config.artifact_bytes == 64 << 20
    assert not config.open
    assert config.bind is None
    assert config.limits is None


@pytest.mark.parametrize(
    ("bare", "own", "field"),
    [
        ("SANDBOX_MAX_CONCURRENT", "SANDBOX_ONESHOT_MAX_CONCURRENT", "concurrent"),
        ("SANDBOX_TIMEOUT_SECS", "SANDBOX_ONESHOT_TIMEOUT_SECS", "timeout_s"),
        ("SANDBOX_MAX_TIMEOUT_SECS", "SANDBOX_ONESHOT_MAX_TIMEOUT_SECS", "max_timeout_s"),
        ("SANDBOX_LEASE_TTL_SECS", "SANDBOX_ONESHOT_LEASE_TTL_SECS", "lease_ttl_s"),
        ("SANDBOX_MAX_LEASES", "SANDBOX_ONESHOT_MAX_LEASES", "leases"),
        ("SANDBOX_MAX_OUTPUT_BYTES", "SANDBOX_ONESHOT_MAX_OUTPUT_BYTES", "output_bytes"),
        ("SANDBOX_MAX_ARTIFACT_BYTES", "SANDBOX_ONESHOT_MAX_ARTIFACT_BYTES", "artifact_bytes"),
    ],
)
def test_its_own_name_comes_first(bare: str, own: str, field: str) -> None:
    assert getattr(LeasesConfig.from_env({bare: "7"}), field) == 7
    assert getattr(LeasesConfig.from_env({bare: "7", own: "9"}), field) == 9


@pytest.mark.parametrize(("asked", "expected"), [(None, 60), (0, 1), (1, 1), (300, 300), (301, 300), (1 << 63, 300)])
def test_the_limit_of_a_run(asked: int | None, expected: int) -> None:
    assert LeasesConfig().timeout_ms(asked) == expected * 1000


def test_the_usual_limit_is_clamped_too() -> None:
    assert LeasesConfig(timeout_s=900, max_timeout_s=300).timeout_ms(None) == 300_000


def test_open_only_where_nobody_else_comes() -> None:
    config = LeasesConfig.from_env({"SANDBOX_ONESHOT_AUTH": "none"})
    assert config.open_on(loopback=True)
    assert not config.open_on(loopback=False)
    own = LeasesConfig.from_env({"SANDBOX_ONESHOT_AUTH": "none", "SANDBOX_ONESHOT_BIND": "127.0.0.1:9000"})
    assert not own.open_on(loopback=True)


@pytest.mark.parametrize(("raw", "loopback"), [("127.0.0.1:9000", True), ("[::1]:0", True), ("10.88.0.1:9000", False)])
def test_its_own_listener(raw: str, loopback: bool) -> None:
    assert LeasesConfig.from_env({"SANDBOX_ONESHOT_BIND": raw}).bound_to_loopback is loopback


@pytest.mark.parametrize("raw", ["9000", "host", ":1", "a:b", "a:70000"])
def test_a_listener_that_is_none(raw: str) -> None:
    with pytest.raises(ConfigurationError, match="SANDBOX_ONESHOT_BIND"):
        LeasesConfig.from_env({"SANDBOX_ONESHOT_BIND": raw})


def test_every_name_of_the_protocol_is_known() -> None:
    names = (
        "BIND IMAGE RUNTIME PODMAN POOL_SIZE MAX_CONCURRENT IMAGE_CHECK_SECS TIMEOUT_SECS MAX_TIMEOUT_SECS MEMORY CPUS "
        "PIDS_LIMIT WORK_SIZE TMP_SIZE WORK_ROOT MAX_OUTPUT_BYTES EGRESS_NETWORK EGRESS_PROXY LEASE_TTL_SECS "
        "MAX_LEASES AGENT_WORK ARTIFACTS_INPLACE MAX_ARTIFACT_BYTES"
    ).split()
    from runner.settings import known_names

    assert {f"SANDBOX_{name}" for name in names} <= known_names()
    assert Settings.from_env({"HOME": "/", "SANDBOX_WORK_ROOT": "/srv/work", "SANDBOX_TMP_SIZE": "512m"}).unknown == ()
