"""What was set for one conversation: labels, life and limits, as one record whose newest state counts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from runner.workspace import keys
from runner.workspace.core import Core
from runner.workspace.encoding import Json
from runner.workspace.series import Series


class Settings(Core):
    """Read once, then kept in memory. Other processes see a change after ``refresh``."""

    _settings_known: Json | None = None

    async def settings(self) -> Json:
        """What was set; empty when nothing was. The caller may change what it gets."""
        self._check_alive()
        if self._settings_known is None:
            await self.alone(self._read_settings)
        return copy.deepcopy(self._settings_known or {})

    async def set_settings(self, payload: Mapping[str, Any]) -> None:
        """Replace all settings, durably. Raises ``TooLarge``."""
        wanted = copy.deepcopy(dict(payload))
        await self.alone(lambda: self._write_settings(wanted))

    async def refresh(self) -> None:
        """Take in what other writers have stored. ``NotFound`` when one has purged the conversation."""
        self._settings_known = None
        await super().refresh()

    async def _read_settings(self) -> None:
        if self._settings_known is None:
            self._settings_known = (await self._series().newest())[1] or {}

    async def _write_settings(self, payload: Json) -> None:
        series = self._series()
        number = await series.add(payload)
        self._settings_known = payload
        await series.forget([old for old in await series.numbers() if old < number])

    def _series(self) -> Series:
        return Series(self._store, keys.settings(self.home))
