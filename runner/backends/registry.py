"""Names the backends and chooses one; only the composition root asks.

``auto`` is Docker where its daemon answers and has the image, else bubblewrap. Only where neither can start a sandbox,
and the operator has set ``SANDBOX_ALLOW_UNISOLATED=1``, does it become the backend without isolation, with a warning.
What has been chosen once stays so until the service ends: one that fails now and then is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from runner.backends.base import Backend, BackendReport, Permission, Sandbox, as_it_is
from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.docker.backend import DockerBackend
from runner.backends.docker.config import DockerConfig
from runner.backends.unisolated.backend import UnisolatedBackend
from runner.backends.unisolated.config import UnisolatedConfig
from runner.errors import ConfigurationError
from runner.model import SandboxSpec
from runner.telemetry.logs import logger

NAMES = ("auto", "docker", "bubblewrap", "unisolated")
ISOLATING = ("docker", "bubblewrap")
SWITCH = "SANDBOX_ALLOW_UNISOLATED=1"
log = logger("backends")


def create(
    name: str, docker: DockerConfig, bubblewrap: BubblewrapConfig, allow_unisolated: bool, boot: str | None = None
) -> Backend:
    """The backend called ``name``; ``boot`` is the id of this start. Raises ConfigurationError."""
    if name == "unisolated" and not allow_unisolated:
        raise ConfigurationError(f"SANDBOX_BACKEND=unisolated runs code without isolation: it needs {SWITCH} too")
    makers: dict[str, Callable[[], Backend]] = {
        "docker": lambda: DockerBackend(docker, boot),
        "bubblewrap": lambda: BubblewrapBackend(bubblewrap),
        "unisolated": lambda: UnisolatedBackend(
            UnisolatedConfig.beside(
                bubblewrap.rootfs, bubblewrap.state, bubblewrap.limits, egress=bubblewrap.egress.wanted
            )
        ),
    }
    if name == "auto":
        return Automatic(*(make() for make in makers.values()), allow_unisolated=allow_unisolated)
    if name not in makers:
        raise ConfigurationError(f"SANDBOX_BACKEND={name!r} is not known; choose one of {', '.join(NAMES)}")
    if name == "unisolated":
        log.warning("NO ISOLATION: code runs on this host as it is", because="SANDBOX_BACKEND=unisolated")
    return makers[name]()


def passed_over(backend: Backend) -> str:
    """Why ``auto`` did not choose what comes before in its order; empty where there was no choice."""
    return backend.passed_over if isinstance(backend, Automatic) else ""


class Automatic:
    """The first that can start a sandbox and may; without isolation only if the operator said so. The first ``probe``
    that finds one decides.
    """

    def __init__(self, engine: Backend, jails: Backend, bare: Backend, *, allow_unisolated: bool) -> None:
        self._isolated, self._bare, self._allowed = (engine, jails), bare, allow_unisolated
        self._chosen, self._decided = jails, False
        self.passed_over = ""

    @property
    def name(self) -> str:
        return self._chosen.name

    async def probe(self, allowed: Permission = as_it_is) -> BackendReport:
        if self._decided:
            return await self._chosen.probe(allowed)
        report = await self._choose(allowed)
        self._decided = report.available
        return report

    async def _choose(self, allowed: Permission) -> BackendReport:
        reasons: list[str] = []
        for backend in self._isolated:
            report = await backend.probe(allowed)
            if report.available:
                self._chosen, self.passed_over = backend, "; ".join(reasons)
                return report
            reasons.append(f"{backend.name}: {report.detail}")
        why = "; ".join(reasons)
        if not self._allowed:
            return replace(report, detail=f"{why} (without isolation, for demos and tests: {SWITCH})")
        log.warning("NO ISOLATION: code runs on this host as it is", because=why, switch=SWITCH)
        bare = await self._bare.probe(allowed)
        if not bare.available:
            return replace(report, detail=f"{why}; and without isolation: {bare.detail}")
        self._chosen, self.passed_over = self._bare, ""
        return replace(bare, detail=f"{bare.detail}; {why}")

    async def trouble(self) -> str:
        return await self._chosen.trouble()

    async def renewed(self, allowed: Permission = as_it_is) -> BackendReport | None:
        return await self._chosen.renewed(allowed)

    async def create(self, spec: SandboxSpec) -> Sandbox:
        return await self._chosen.create(spec)

    async def survivors(self) -> list[str]:
        return await self._chosen.survivors()

    async def attach(self, sandbox_id: str) -> Sandbox:
        return await self._chosen.attach(sandbox_id)

    async def sweep(self) -> int:
        """What any of them left: an earlier start may have chosen another. A daemon that is not used is not asked."""
        engine, jails = self._isolated
        swept = await engine.sweep() if self._chosen is engine else 0
        return swept + await jails.sweep() + await self._bare.sweep()
