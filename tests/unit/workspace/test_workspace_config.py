"""Settings of the workspace layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.errors import ConfigurationError
from runner.workspace.config import WorkspaceConfig


def test_defaults() -> None:
    config = WorkspaceConfig.from_env({}, uid=0)
    assert config == WorkspaceConfig(Path("/var/lib/foliobox"), 256 << 20, 512 << 20, 20_000)


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "/home/u"}, "/home/u/.local/share/foliobox"),
        ({"HOME": "/home/u", "XDG_DATA_HOME": "/data"}, "/data/foliobox"),
        ({"HOME": "/home/u", "XDG_DATA_HOME": "relative"}, "/home/u/.local/share/foliobox"),
        ({"HOME": "/home/u", "SANDBOX_DATA_DIR": "/srv/f"}, "/srv/f"),
    ],
)
def test_data_folder_of_a_user(env: dict[str, str], folder: str) -> None:
    assert WorkspaceConfig.from_env(env, uid=1000).data_dir == Path(folder)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("512m", 512 << 20), ("2G", 2 << 30), ("64k", 65536), ("1M", 1 << 20)],
)
def test_sizes(text: str, size: int) -> None:
    assert WorkspaceConfig.from_env({"SANDBOX_WORKSPACE_SIZE": text}, uid=0).workspace_bytes == size


@pytest.mark.parametrize("name", ["SANDBOX_WORKSPACE_SIZE", "SANDBOX_MAX_UPLOAD_BYTES"])
@pytest.mark.parametrize("value", ["0", "-1", "1.5g", "12q", "10mb", "lots", "1" * 30, "٣"])
def test_malformed_sizes_name_variable_value_and_form(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        WorkspaceConfig.from_env({name: value}, uid=0)
    assert name in caught.value.detail
    assert value in caught.value.detail
    assert "512m" in caught.value.detail


@pytest.mark.parametrize(("name", "value"), [("SANDBOX_DATA_DIR", "data"), ("SANDBOX_WORKSPACE_FILES", "many")])
def test_other_malformed_values(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        WorkspaceConfig.from_env({name: value}, uid=0)
