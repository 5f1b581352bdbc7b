"""Looks again and again whether sandboxes can be started, and of what: engines stop and come back, images change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from runner.backends.base import Backend, BackendReport, Permission, as_it_is
from runner.telemetry.logs import logger

EVERY_S: Final = 5.0
_SLOWEST_S: Final = 60.0
RENEWAL_EVERY: Final = 6  # looks: a new image is used after about half a minute
_SURE_AFTER: Final = 2  # looks: one missed answer is a busy daemon
log = logger("backends")


class Watch:
    """Tells ``changed`` of every change. What was available and is in trouble is probed anew before it counts again.

    What ``allowed`` does not let through is not available, and is probed again as what is not there.
    While ``changed`` gives False, something is left for it to do: it is told again at the next good look.
    """

    def __init__(
        self,
        backend: Backend,
        report: BackendReport,
        changed: Callable[[BackendReport], Awaitable[bool]],
        allowed: Permission = as_it_is,
        *,
        done: bool = True,
    ) -> None:
        self._backend, self._report, self._changed, self._allowed = backend, report, changed, allowed
        self._done = done
        self._doubts = self._looks = 0
        self._pause_s = EVERY_S
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s)
            try:
                await self.look()
            except Exception:  # whatever it was, the next look may be better
                log.exception("could not look at the backend")

    async def look(self) -> None:
        """One look."""
        trouble = await self._backend.trouble()
        self._doubts = self._doubts + 1 if trouble else 0
        if not self._report.available:
            await self._look_for_its_return(trouble)
        elif self._doubts >= _SURE_AFTER:
            log.error("no sandbox can be started any more", backend=self._backend.name, detail=trouble)
            await self._tell(replace(self._report, available=False, detail=trouble))
        elif not trouble:
            await self._look_for_news()

    async def _look_for_its_return(self, trouble: str) -> None:
        report = None if trouble else await self._backend.probe(self._allowed)
        if report is not None and report.available:
            log.info("sandboxes can be started", backend=report.name, runtime=report.runtime)
            await self._tell(report)
            return
        pause_s = min(2 * self._pause_s, _SLOWEST_S)
        if report is not None and report.detail != self._report.detail:
            log.error("no sandbox can be started", backend=report.name, detail=report.detail)
            await self._tell(report)
        self._pause_s = pause_s

    async def _look_for_news(self) -> None:
        self._looks += 1
        if not self._done:
            await self._tell(self._report)
        if self._looks % RENEWAL_EVERY == 0:
            report = await self._backend.renewed(self._allowed)
            if report is not None:
                if report.image != self._report.image:
                    log.info("sandboxes are of another image now", was=self._report.image, image=report.image)
                if report.network != self._report.network:
                    log.warning("egress is another now", on=report.egress, detail=report.egress_detail)
                await self._tell(report)

    async def _tell(self, report: BackendReport) -> None:
        self._report, self._pause_s, self._done = report, EVERY_S, False
        self._done = await self._changed(report)
