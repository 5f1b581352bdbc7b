"""What the composition root refuses to start with, whatever the host of the test offers."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.api import key_file
from runner.api.config import ApiConfig
from runner.api.keyring import Keyring
from runner.api.keys import Key, hashed, new_secret
from runner.app import check_exposure
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
