"""Names the backends and chooses one; only the composition root asks.

``auto`` is bubblewrap. Only where bubblewrap cannot start a sandbox, and the operator has set
``SANDBOX_ALLOW_UNISOLATED=1``, does it become the backend without isolation, with a warning.
"""

from __future__ import annotations

from dataclasses import replace

from runner.backends.base import Backend, BackendReport, Sandbox
from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.unisolated.backend import UnisolatedBackend
from runner.backends.unisolated.config import UnisolatedConfig
from runner.errors import ConfigurationError
from runner.model import SandboxSpec
from runner.telemetry.logs import logger

SWITCH = "SANDBOX_ALLOW_UNISOLATED=1"
log = logger("backends")


def create(name: str, bubblewrap: BubblewrapConfig, allow_unisolated: bool) -> Backend:
    """The backend called ``name``. Raises ConfigurationError."""
    jails = BubblewrapBackend(bubblewrap)
    if name == "bubblewrap":
        return jails
    if name == "unisolated" and not allow_unisolated:
        raise ConfigurationError(f"SANDBOX_BACKEND=unisolated runs code without isolation: it needs {SWITCH} too")
    bare = UnisolatedBackend(UnisolatedConfig.beside(bubblewrap.rootfs, bubblewrap.state, bubblewrap.limits))
    if name == "unisolated":
        log.warning("NO ISOLATION: code runs on this host as it is", because="SANDBOX_BACKEND=unisolated")
        return bare
    if name == "auto":
        return Automatic(jails, bare, allow_unisolated)
    raise ConfigurationError(f"SANDBOX_BACKEND={name!r} is not known; choose one of auto, bubblewrap, unisolated")


class Automatic:
    """Bubblewrap; without isolation only where that fails and the operator said so. ``probe`` decides."""

    def __init__(self, jails: Backend, bare: Backend, allow_unisolated: bool) -> None:
        self._jails, self._bare, self._allowed = jails, bare, allow_unisolated
        self._chosen = jails

    @property
    def name(self) -> str:
        return self._chosen.name

    async def probe(self) -> BackendReport:
        self._chosen = self._jails
        report = await self._jails.probe()
        if report.available:
            return report
        if not self._allowed:
            return replace(report, detail=f"{report.detail} (without isolation, for demos and tests: {SWITCH})")
        log.warning("NO ISOLATION: code runs on this host as it is", because=report.detail, switch=SWITCH)
        bare = await self._bare.probe()
        if not bare.available:
            return replace(report, detail=f"{report.detail}; and without isolation: {bare.detail}")
        self._chosen = self._bare
        return replace(bare, detail=f"{bare.detail}; bubblewrap: {report.detail}")

    async def create(self, spec: SandboxSpec) -> Sandbox:
        return await self._chosen.create(spec)

    async def sweep(self) -> int:
        return await self._jails.sweep() + await self._bare.sweep()
