"""Looks again and again whether sandboxes can be started, and of what: engines stop and come back, images change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from runner.backends.base import Backend, BackendReport
from runner.telemetry.logs import logger

EVERY_S: Final = 5.0
_SLOWEST_S: Final = 60.0
RENEWAL_EVERY: Final = 6  # looks: a new image is used after about half a minute
_SURE_AFTER: Final = 2  # looks: one missed answer is a busy daemon
log = logger("backends")


class Watch:
    """Tells ``changed`` of every change. What was available and is in trouble is probed anew before it counts again."""

    def __init__(
        self, backend: Backend, report: BackendReport, changed: Callable[[BackendReport], Awaitable[None]]
    ) -> None:
        self._backend, self._report, self._changed = backend, report, changed
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
        if self._report.available:
            if self._doubts >= _SURE_AFTER:
                log.error("no sandbox can be started any more", backend=self._backend.name, detail=trouble)
                await self._tell(replace(self._report, available=False, detail=trouble))
            elif not trouble:
                await self._look_for_news()
            return
        if not trouble:
            report = await self._backend.probe()
            if report.available:
                log.info("sandboxes can be started", backend=report.name, runtime=report.runtime)
                await self._tell(report)
                return
        self._pause_s = min(2 * self._pause_s, _SLOWEST_S)

    async def _look_for_news(self) -> None:
        self._looks += 1
        if self._looks % RENEWAL_EVERY == 0:
            report = await self._backend.renewed()
            if report is not None:
                log.info("sandboxes are of another image now", was=self._report.image, image=report.image)
                await self._tell(report)

    async def _tell(self, report: BackendReport) -> None:
        self._report, self._pause_s = report, EVERY_S
        await self._changed(report)
