"""Executions of a conversation in the store: begun once, ended once, claimed once by an idempotency key.

The object is the state: whoever creates it first has decided, in this process, in another, or before a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from runner.errors import Conflict
from runner.workspace import keys
from runner.workspace.base import KeyExists
from runner.workspace.core import Core
from runner.workspace.encoding import Json, decode_record, encode_record
from runner.workspace.paths import check_record_name

_INLINE: Final = 256 << 10
_SHORT: Final = 32 << 10


@dataclass(frozen=True, slots=True)
class ExecutionRecord:
    """What is known of an execution. ``end`` None: it runs, or whoever ran it is gone. One that ended at once may
    have no beginning; ``begin`` is then empty.
    """

    begin: Json
    end: Json | None


def end_of(home: str, execution_id: str, payload: Mapping[str, Any]) -> tuple[str, bytes] | None:
    """The object that notes an execution's outcome; None when it is too large to be made beside something else."""
    if _room(payload, _SHORT) <= 0:
        return None
    return keys.execution_end(home, check_record_name(execution_id)), encode_record(payload, short=True)


class Executions(Core):
    """Records of what was run. Their payloads are JSON of at most 16 MiB, else ``TooLarge``."""

    async def begin_execution(self, execution_id: str, payload: Mapping[str, Any]) -> None:
        """Note that an execution begins, durably. Raises ``Conflict`` when that id was begun before."""
        self._check_alive()
        key = keys.execution_begin(self.home, check_record_name(execution_id))
        try:
            await self._store.create(key, await _encode(payload))
        except KeyExists:
            raise Conflict("An execution of this id has begun before; each needs an id of its own.") from None

    async def end_execution(self, execution_id: str, payload: Mapping[str, Any]) -> bool:
        """Note its one outcome, durably; False when it had ended, and that outcome stands.

        ``payload["blobs"]`` names the blobs that the record refers to, so that they are kept.
        """
        self._check_alive()
        key = keys.execution_end(self.home, check_record_name(execution_id))
        try:
            await self._store.create(key, await _encode(payload))
        except KeyExists:
            return False
        return True

    async def read_execution(self, execution_id: str) -> ExecutionRecord | None:
        """What is known of an execution; None when it never began here. Raises ``StoreFailed`` for damage."""
        self._check_alive()
        check_record_name(execution_id)
        wanted = [keys.execution_begin(self.home, execution_id), keys.execution_end(self.home, execution_id)]
        begin, end = await self._store.read_many(wanted)
        if begin is None and end is None:
            return None
        return ExecutionRecord(
            {} if begin is None else await _decode(begin, wanted[0]),
            None if end is None else await _decode(end, wanted[1]),
        )

    async def unended(self) -> list[str]:
        """Executions that were begun and have no outcome, in the order of their ids."""
        self._check_alive()
        names: list[str] = []
        while page := await self._store.names(keys.executions(self.home), names[-1] if names else ""):
            names += page
        ended = {name.removesuffix(keys.END) for name in names if name.endswith(keys.END)}
        begun = [name.removesuffix(keys.BEGIN) for name in names if name.endswith(keys.BEGIN)]
        return [name for name in begun if name not in ended]

    async def claim(self, key: str, payload: Mapping[str, Any], generation: int = 1) -> Json | None:
        """Claim an idempotency key: None when it is ours now, durably; else what the first claim said.

        The next ``generation`` may be claimed when what claimed the one before is known never to run.
        """
        self._check_alive()
        where = keys.claim(self.home, key, generation)
        try:
            await self._store.create(where, encode_record(payload))
        except KeyExists:
            return decode_record(await self._store.read(where), where)
        return None

    async def read_claim(self, key: str, generation: int = 1) -> Json | None:
        """What claimed an idempotency key, or None. Claims nothing."""
        self._check_alive()
        where = keys.claim(self.home, key, generation)
        found = (await self._store.read_many([where]))[0]
        return None if found is None else decode_record(found, where)


async def _encode(payload: Mapping[str, Any]) -> bytes:
    """Results of some MiB must not keep the loop from its other work; small ones are not worth a thread."""
    room = _room(payload, _INLINE)
    if room > 0:
        return encode_record(payload, short=_INLINE - room < _SHORT)
    return await asyncio.to_thread(encode_record, payload)


def _room(value: Any, room: int) -> int:
    """What is left of ``room`` characters behind a payload, with an allowance for every value; looks no further."""
    if isinstance(value, str):
        return room - len(value)
    room -= 8
    if isinstance(value, (Mapping, list)):
        for inner in value.values() if isinstance(value, Mapping) else value:
            if room <= 0:
                break
            room = _room(inner, room - 16)
    return room


async def _decode(data: bytes, key: str) -> Json:
    if len(data) < _INLINE:
        return decode_record(data, key)
    return await asyncio.to_thread(decode_record, data, key)
