"""What a run prints and shows, bounded before it leaves the sandbox: beyond the bounds it is only counted."""

from __future__ import annotations

import codecs

from .protocol import DISPLAY_BYTES, DISPLAYS_KEEP, STREAM_KEEP, TAIL_KEEP, UPDATES_KEEP, Json

Shown = tuple[Json, tuple[bytes, ...]]
_HELD_BYTES = 16 << 20


class Stream:
    """Output of a run: the first 16 MiB are forwarded, of the rest only the count and the last 64 KiB stay."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = 0
        self.forwarded = 0
        self.tail = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, data: bytes) -> str:
        """Text to forward for ``data``; empty once the cap is reached."""
        self.total += len(data)
        keep = data[: max(0, STREAM_KEEP - self.forwarded)]
        self.forwarded += len(keep)
        rest = data[len(keep) :]
        if rest:
            self.tail += rest
            del self.tail[: max(0, len(self.tail) - TAIL_KEEP)]
        return self._decoder.decode(keep)

    def finish(self) -> tuple[str, Json]:
        """Text still held back by the decoder, and the final counts."""
        return self._decoder.decode(b"", True), {
            "total": self.total,
            "forwarded": self.forwarded,
            "tail": bytes(self.tail).decode("utf-8", "replace"),
        }


class Displays:
    """What a run may still show. The host takes no more than this; to send it would only keep the host busy."""

    def __init__(self) -> None:
        self.dropped = 0
        self._shown = self._updates = self._bytes = 0
        self._ids: set[str] = set()
        self._held: dict[str, Shown] = {}
        self._held_bytes = 0

    def take(self, body: Json, attachments: tuple[bytes, ...]) -> bool:
        """Whether to send a display now; an update that comes too late is held instead of the one before it."""
        name, size = body.get("display_id"), _size(body, attachments)
        update = body.get("kind") == "update" and isinstance(name, str) and name in self._ids
        if isinstance(name, str) and update and self._updates >= UPDATES_KEEP:
            self._hold(name, (body, attachments), size)
            return False
        if not self._room(update, size):
            return False
        if update:
            self._updates += 1
        else:
            self._shown += 1
            if isinstance(name, str):
                self._ids.add(name)
        return True

    def _hold(self, name: str, shown: Shown, size: int) -> None:
        before = self._held.pop(name, None)
        self._held_bytes -= 0 if before is None else _size(*before)
        if self._held_bytes + size > _HELD_BYTES:
            self.dropped += 1
            return
        self._held_bytes += size
        self._held[name] = shown

    def held(self) -> list[Shown]:
        """The last updates that were held, as far as there is room."""
        held, self._held = list(self._held.values()), {}
        return [shown for shown in held if self._room(True, _size(*shown))]

    def _room(self, update: bool, size: int) -> bool:
        if (not update and self._shown >= DISPLAYS_KEEP) or self._bytes + size > DISPLAY_BYTES:
            self.dropped += 1
            return False
        self._bytes += size
        return True


def _size(body: Json, attachments: tuple[bytes, ...]) -> int:
    data = body.get("data")
    texts = data.values() if isinstance(data, dict) else ()
    return sum(map(len, attachments)) + sum(len(text) for text in texts if isinstance(text, str))
