"""The table of settings is what the code reads, and the documentation shows the whole table."""

from __future__ import annotations

from pathlib import Path

from runner.cli.settings_table import SETTINGS
from runner.settings import known_names

ROOT = Path(__file__).parents[2]


def test_the_table_names_every_setting_that_the_code_reads() -> None:
    listed = {setting.name for setting in SETTINGS if setting.name.startswith("SANDBOX_")}
    foreign = {"SANDBOX_SERVICE_", "SANDBOX_PORT"}
    assert listed == known_names() - foreign


def test_the_documentation_shows_the_table() -> None:
    text = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    for setting in SETTINGS:
        assert f"| `{setting.name}` | {setting.default} | {setting.meaning} |" in text
