"""What the composition root refuses to start with, whatever the host of the test offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.api import key_file
from runner.api.config import ApiConfig
from runner.api.keyring import Keyring
from runner.api.keys import Key, hashed, new_secret
from runner.app import _allowed, check_exposure, check_isolation, settle_isolation
from runner.backends.base import BackendReport, Wall
from runner.errors import ConfigurationError
from runner.settings import Settings


@pytest.mark.parametrize("missing", ["own-uid", "cgroups"])
def test_a_missing_wall_confines_to_one_tenant(tmp_path: Path, missing: str) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(
        key_file.render([Key(name, name, hashed(new_secret().encode()), frozenset(("run",))) for name in ("a", "b")])
    )
    path.chmod(0o600)
    settings = Settings.from_env({"HOME": str(tmp_path), "SANDBOX_API_KEYS_FILE": str(path)})
    open_gap, whole = (BackendReport("bubblewrap", True, walls=(Wall(missing, stands),)) for stands in (False, True))
    check_exposure(settings, whole, Keyring(settings.api))
    with pytest.raises(ConfigurationError, match="only one is served"):
        check_exposure(settings, open_gap, Keyring(settings.api))
    check_exposure(settings, open_gap, Keyring(ApiConfig(key="k" * 20)))


RUNC = BackendReport("docker", True, "shared-kernel", runtime="runc")
RUNSC = BackendReport("docker", True, "separate-kernel", runtime="runsc")
DOWN = BackendReport("docker", False, detail="no daemon")


def settings_of(tmp_path: Path, **env: str) -> Settings:
    return Settings.from_env({"SANDBOX_DATA_DIR": str(tmp_path), "HOME": str(tmp_path), **env})


@pytest.mark.parametrize("report", [RUNC, DOWN])
def test_isolation_that_is_required_and_not_there_stops_the_start(tmp_path: Path, report: BackendReport) -> None:
    settings = settings_of(tmp_path, SANDBOX_REQUIRE_ISOLATION="separate-kernel")
    with pytest.raises(ConfigurationError, match="SANDBOX_REQUIRE_ISOLATION"):
        settle_isolation(settings, report)
    settle_isolation(settings, RUNSC)
    settle_isolation(settings_of(tmp_path / "other"), report)


@pytest.mark.parametrize(
    ("env", "ours"),
    [
        ({}, True),
        ({"SANDBOX_BACKEND": "docker"}, True),
        ({"SANDBOX_BACKEND": "docker", "SANDBOX_RUNTIME": "runc"}, False),
        ({"SANDBOX_BACKEND": "bubblewrap"}, False),
    ],
)
def test_only_what_was_left_to_us_is_held_to_what_was_chosen_before(
    tmp_path: Path, env: dict[str, str], ours: bool
) -> None:
    settle_isolation(settings_of(tmp_path), RUNSC)
    settle_isolation(settings_of(tmp_path, **env), DOWN)  # it may come back as it was
    if ours:
        with pytest.raises(ConfigurationError, match="before"):
            settle_isolation(settings_of(tmp_path, **env), RUNC)
    else:
        settle_isolation(settings_of(tmp_path, **env), RUNC)


def test_a_check_notes_nothing(tmp_path: Path) -> None:
    check_isolation(settings_of(tmp_path), RUNSC)
    settle_isolation(settings_of(tmp_path), RUNC)


def test_what_is_found_later_and_weaker_than_before_may_not_be_used(tmp_path: Path) -> None:
    settings, keyring = settings_of(tmp_path), Keyring(ApiConfig(key="k" * 20))
    assert _allowed(settings, RUNSC, keyring) is RUNSC
    assert _allowed(settings, DOWN, keyring) is DOWN
    refused = _allowed(settings, RUNC, keyring)
    assert (refused.available, refused.runtime) == (False, "runc")
    assert "before" in refused.detail
    assert _allowed(settings, RUNSC, keyring) is RUNSC
