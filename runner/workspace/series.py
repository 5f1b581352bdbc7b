"""A folder of numbered JSON records of which the newest counts: settings, owners, heartbeats, records."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from runner.errors import Conflict, StoreFailed
from runner.workspace import keys
from runner.workspace.base import KeyExists, KeyMissing, Store
from runner.workspace.encoding import Json, decode_record, encode_record

RETRIES: Final = 64


class Series:
    """Numbers count from 1; a number is taken once, and that is what makes two writers safe."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self.folder = folder

    async def numbers(self) -> list[int]:
        """All numbers that are kept, ascending."""
        found: list[int] = []
        last = ""
        while page := await self._store.names(self.folder, last):
            found += [number for number in map(keys.number_of, page) if number is not None]
            last = page[-1]
        return found

    async def newest(self) -> tuple[int, Json | None]:
        """The newest number with its record; ``(0, None)`` when there is none. Raises ``StoreFailed``."""
        for _ in range(RETRIES):
            numbers = await self.numbers()
            if not numbers:
                return 0, None
            with suppress(KeyMissing):  # superseded and removed since it was listed
                return numbers[-1], await self.read(numbers[-1])
        raise Conflict("Others keep writing this record; send it again.")

    async def read(self, number: int) -> Json:
        """One record. Raises ``KeyMissing``, ``StoreFailed``."""
        key = keys.numbered(self.folder, number)
        return decode_record(await self._store.read(key), key)

    async def append(self, number: int, payload: Mapping[str, Any]) -> bool:
        """Take ``number``, durably; False when it was taken."""
        try:
            await self._store.create(keys.numbered(self.folder, number), encode_record(payload))
        except KeyExists:
            return False
        return True

    async def add(self, payload: Mapping[str, Any]) -> int:
        """Append after the newest, whoever else does; the number taken."""
        numbers = await self.numbers()
        number = numbers[-1] if numbers else 0
        for _ in range(RETRIES):
            number += 1
            if await self.append(number, payload):
                return number
        raise Conflict("Others keep writing this record; send it again.")

    async def forget(self, numbers: list[int]) -> None:
        """Remove superseded records, oldest first. What cannot be removed stays until the next time."""
        with suppress(StoreFailed):
            for number in numbers:
                await self._store.delete(keys.numbered(self.folder, number))
