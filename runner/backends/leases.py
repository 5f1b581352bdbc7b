"""Host uids for sandboxes: one at a time each, over all runners of this host.

A lease is a bound abstract socket, so that the kernel gives it back when its runner dies, however it dies.
"""

from __future__ import annotations

import contextlib
import secrets
import socket

from runner.errors import BackendUnavailable

# Above every range that systemd and user name space tools hand out (see systemd's UIDS-GIDS document).
UID_BASE = 1_900_000_000
UID_COUNT = 65_536
_TRIES = 200


class UidLease:
    """A host uid that no other sandbox has until ``release``."""

    def __init__(self, uid: int, lock: socket.socket) -> None:
        self.uid = uid
        self._lock = lock

    def release(self) -> None:
        """Let others have the uid; idempotent."""
        self._lock.close()


def take_uid() -> UidLease:
    """A free uid, chosen by chance. Raises BackendUnavailable when none is found."""
    for _ in range(_TRIES):
        lease = hold_uid(UID_BASE + secrets.randbelow(UID_COUNT))
        if lease is not None:
            return lease
    raise BackendUnavailable("no free uid for a sandbox: end some runners of this host", cause="all tries were taken")


def hold_uid(uid: int) -> UidLease | None:
    """This very uid; None while some sandbox of this host has it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        lock.bind(f"\0foliobox-uid-{uid}")
        return UidLease(uid, lock)
    lock.close()
    return None
