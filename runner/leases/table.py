"""Which leases there are, who uses them, and what a later start of the service is to know of them."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from runner.backends import records
from runner.telemetry.logs import logger

PREFIX: Final = "sbx-"
log = logger("leases")


@dataclass(eq=False)
class Lease:
    """A conversation of this surface. ``kept``: its caller has its id; else it is for one run only.

    ``last_used`` is when its last run ended (wall clock, which a restart does not set back).
    """

    tenant: str
    id: str
    network: bool = False
    kept: bool = False
    last_used: float = 0.0
    runs: int = 0  # going on or waiting for their turn
    ended: bool = False

    @property
    def busy(self) -> bool:
        """Whether a run goes on in it."""
        return self.runs > 0


class Table:
    """All leases of this process; each noted below ``folder`` as long as its conversation may be there."""

    def __init__(self, folder: Path | None, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self._all: dict[tuple[str, str], Lease] = {}

    def make(self, tenant: str, network: bool) -> Lease:
        """One that nobody knows of yet; whoever knows its id may use it."""
        name = f"{PREFIX}{os.getpid()}-{time.time_ns():x}-{secrets.token_hex(8)}"
        lease = Lease(tenant, name, network, last_used=self._clock())
        self._all[tenant, name] = lease
        self._note(lease)
        return lease

    def find(self, tenant: str, identifier: str | None) -> Lease | None:
        """A lease that its caller was told of."""
        lease = None if identifier is None else self._all.get((tenant, identifier))
        return lease if lease is not None and lease.kept and not lease.ended else None

    def keep(self, lease: Lease) -> None:
        """It was used: from now on it is idle."""
        lease.kept, lease.last_used = True, self._clock()
        self._note(lease)

    def end(self, lease: Lease) -> None:
        """Nobody may use it any more; its note stays until ``forget``."""
        lease.ended = True
        self._all.pop((lease.tenant, lease.id), None)

    @property
    def kept(self) -> int:
        """How many leases callers have."""
        return sum(lease.kept for lease in self._all.values())

    def overdue(self, ttl_s: float) -> list[Lease]:
        """Leases that were idle for longer."""
        now = self._clock()
        return [x for x in self._all.values() if x.kept and not x.busy and now - x.last_used > ttl_s]

    # -- notes -------------------------------------------------------------------------------------------------

    def _note(self, lease: Lease) -> None:
        if self._folder is None:
            return
        content = {"tenant": lease.tenant, "network": lease.network, "kept": lease.kept, "used": lease.last_used}
        try:
            records.write(self._folder, lease.id, content)
        except OSError as error:
            log.warning("a lease could not be noted: a restart will not find it", cause=repr(error))

    def forget(self, lease: Lease) -> None:
        """Its conversation is gone."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / f"{lease.id}.json").unlink(missing_ok=True)

    def recall(self) -> list[Lease]:
        """Read what an earlier start noted: kept leases are there again. Gives those that were for one run only."""
        left: list[Lease] = []
        for lease in self._read():
            if lease.kept:
                self._all[lease.tenant, lease.id] = lease
                self._note(lease)  # it is this process's now
            else:
                left.append(lease)
        return left

    def _read(self) -> Iterator[Lease]:
        found: list[Lease] = []

        def read(name: str, content: dict[str, Any]) -> bool:
            tenant, used = content.get("tenant"), content.get("used")
            good = name.startswith(PREFIX) and isinstance(tenant, str) and isinstance(used, (int, float))
            if good:
                used_at = min(float(used or 0), self._clock())
                found.append(
                    Lease(str(tenant), name, content.get("network") is True, content.get("kept") is True, used_at)
                )
            return not good

        if self._folder is not None:
            with contextlib.suppress(OSError):
                records.sweep(self._folder, read)
        yield from found
