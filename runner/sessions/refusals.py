"""What a call is told that waited in vain, in the words of the protocol and with a time to come again."""

from __future__ import annotations

from runner.errors import Busy, FolioboxError, QueueFull

_TURN_MS = 2000


def busy(ahead: int) -> Busy:
    """The session is still at work."""
    return Busy("session is busy", retry_after_ms=_TURN_MS * max(1, ahead), position=ahead)


def execs_full(ahead: int) -> QueueFull:
    """As many runs go on as may."""
    return QueueFull("exec queue is full", retry_after_ms=_TURN_MS * max(1, ahead), position=ahead)


def creates_full(ahead: int) -> QueueFull:
    """As many sessions are being made as may."""
    return QueueFull("session create queue is full", retry_after_ms=_TURN_MS * max(1, ahead), position=ahead)


def busy_again(error: FolioboxError) -> Busy:
    """The same for what the conversation itself refuses."""
    return Busy("session is busy", retry_after_ms=error.fields.get("retry_after_ms", _TURN_MS))


def execs_full_again(error: FolioboxError) -> QueueFull:
    """The same for what is refused for want of a sandbox."""
    return QueueFull("exec queue is full", retry_after_ms=error.fields.get("retry_after_ms", _TURN_MS))
