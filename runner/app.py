"""The composition root: the one place where settings become objects and objects are wired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline

from runner import __version__
from runner.api import errors, health, metrics, problems
from runner.api.auth import SCHEME
from runner.api.head import Head
from runner.api.keyring import Keyring
from runner.api.links import check_secret, open_signer
from runner.api.middleware import Gate
from runner.api.v1 import links
from runner.api.v1.routers import ROUTERS
from runner.backends import registry
from runner.backends.base import Backend, BackendReport
from runner.backends.choice import Choice
from runner.backends.watch import Watch
from runner.conversations.assignments import Assignments
from runner.conversations.pool import start_sandbox
from runner.conversations.service import ConversationService
from runner.errors import ConfigurationError, FolioboxError
from runner.interpreter.client import SandboxClient
from runner.limits import fit
from runner.limits.host import HostReader
from runner.limits.pressure import Pressure
from runner.settings import Settings
from runner.telemetry import loop_lag
from runner.telemetry.logs import logger
from runner.workspace.collect import Collector
from runner.workspace.owners import Owners, new_runner_id
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces

log = logger("app")


def create_app(settings: Settings) -> FastAPI:
    """The application; its store and backend are opened when it starts serving. Raises ConfigurationError."""
    for check in checks(settings):
        check()
    keyring = Keyring(settings.api)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                app.state.service = await _start(settings, app.state.keyring, stack)
                app.state.link_signer = open_signer(settings.api.link_secret, settings.workspace.data_dir)
            except FolioboxError as error:
                app.state.start_error = error  # told in one line by whoever started the server
                raise
            with loop_lag.watched(asyncio.get_running_loop()):
                yield

    app = FastAPIOffline(  # its /docs needs nothing from the network
        redoc_url=None,
        redirect_slashes=False,
        title="Foliobox",
        version=__version__,
        lifespan=lifespan,
        description="A sandbox runner and a document engine for chat gateways.",
    )
    app.state.start_error = None
    app.state.api_config = settings.api
    app.state.keyring = keyring
    app.state.egress_network = settings.egress_network
    app.state.data_dir = settings.workspace.data_dir
    app.include_router(health.router)
    app.include_router(links.open_router)
    for router in (*ROUTERS, metrics.router):
        app.include_router(router, dependencies=[Depends(SCHEME)])
    errors.install(app)
    problems.describe(app)
    app.add_middleware(Head)
    app.add_middleware(Gate, config=settings.api)
    return app


def checks(settings: Settings) -> Sequence[Callable[[], object]]:
    """What a start looks at before it opens anything but the keys; each by itself, so that all faults can be told.

    Each raises ConfigurationError.
    """
    return (
        settings.api.check,
        lambda: check_secret(settings.api.link_secret, settings.workspace.data_dir),
        lambda: fit.check(settings.limits, fit.Capacity.read()),
    )


def too_little(settings: Settings) -> list[str]:
    """Why this host can never start a sandbox with these settings; empty when it can."""
    return fit.too_little(settings.limits, fit.Capacity.read())


def advice(settings: Settings, backend: str) -> list[str]:
    """What a start goes on with, and an operator is likely to want otherwise."""
    told = fit.doubtful(settings.limits, fit.Capacity.read())
    for name, near in settings.misspelt:
        told.append(f"{name} is not a setting; did you mean {near}?")
    if settings.egress_network:
        told.append(f"SANDBOX_EGRESS_NETWORK is set, but the {backend} backend gives sandboxes no network")
    asked, most = settings.conversations.pool_size, settings.conversations.max_live
    if asked > most:
        told.append(f"SANDBOX_POOL_SIZE={asked} is more than SANDBOX_MAX_SESSIONS={most}: {most} spares are kept")
    return told


async def _start(settings: Settings, keyring: Keyring, stack: AsyncExitStack) -> ConversationService:
    """Open the store, choose the backend and start the service; ``stack`` undoes it in reverse."""
    store = await open_store(settings.workspace)
    stack.push_async_callback(store.close)
    runner_id = new_runner_id()
    backend, report = await choose_backend(settings, runner_id)
    log.info("backend", name=report.name, runtime=report.runtime, passed_over=registry.passed_over(backend))
    settle_isolation(settings, report)
    tell(settings, report)
    check_exposure(settings, report, keyring)
    workspaces = Workspaces(store, settings.workspace)
    owners = Owners(store, runner_id)
    await owners.start(exclusive=True)  # the local store's lock lets one runner in at a time
    stack.push_async_callback(owners.close)
    pressure = Pressure(settings.limits.floors, HostReader(settings.workspace.data_dir, own_groups=not report.engine))
    service = ConversationService(
        backend,
        report,
        workspaces,
        owners,
        settings.conversations,
        settings.limits,
        pressure,
        keyring.tenant_limit,
        Assignments(settings.workspace.data_dir / "sandboxes"),
    )
    stack.push_async_callback(service.close)
    done = await service.start()
    collector = Collector(store, settings.workspace)
    stack.push_async_callback(collector.close)
    collector.start()
    watch = Watch(backend, report, service.renew, lambda found: _allowed(settings, found, keyring), done=done)
    stack.push_async_callback(watch.close)
    watch.start()
    log.info("ready", backend=report.name, image=report.image, available=service.report.available)
    return service


async def choose_backend(settings: Settings, runner_id: str | None = None) -> tuple[Backend, BackendReport]:
    """The backend of this deployment and what its probe found; ``runner_id`` marks what it starts."""
    limits = settings.limits.sandbox
    docker, bubblewrap = replace(settings.docker, limits=limits), replace(settings.bubblewrap, limits=limits)
    backend = registry.create(settings.backend, docker, bubblewrap, settings.allow_unisolated, runner_id)
    return backend, await backend.probe()


async def other_backends(settings: Settings, chosen: str) -> list[BackendReport]:
    """What the isolating backends that were not chosen could do on this host."""
    found = []
    for name in registry.ISOLATING:
        if name != chosen:
            _, report = await choose_backend(replace(settings, backend=name))
            found.append(report)
    return found


def _allowed(settings: Settings, report: BackendReport, keyring: Keyring) -> BackendReport:
    """What a probe found later, before anything is started of it; not available where a start would be refused."""
    try:
        if report.available:
            settle_isolation(settings, report)
            check_exposure(settings, report, keyring)
    except ConfigurationError as error:
        return replace(report, available=False, detail=error.detail)
    return report


def check_isolation(settings: Settings, report: BackendReport) -> None:
    """Refuse what is weaker than required, or than what ``auto`` chose before. Raises ConfigurationError."""
    if settings.require_isolation and report.isolation != settings.require_isolation:
        raise ConfigurationError(
            f"SANDBOX_REQUIRE_ISOLATION={settings.require_isolation}, but the {report.name} backend gives "
            f"{report.isolation}: {report.detail or 'install gVisor (runsc) as a runtime of Docker'}"
        )
    if _left_to_us(settings) and report.available:
        Choice(settings.workspace.data_dir).check(report)


def settle_isolation(settings: Settings, report: BackendReport) -> None:
    """Check it, and note for later starts what ``auto`` chose. Raises ConfigurationError."""
    check_isolation(settings, report)
    if _left_to_us(settings) and report.available:
        Choice(settings.workspace.data_dir).settle(report)


def _left_to_us(settings: Settings) -> bool:
    return settings.backend == "auto" or (settings.backend == "docker" and settings.docker.runtime == "auto")


async def start_one_sandbox(backend: Backend, settings: Settings) -> SandboxClient:
    """A sandbox for `foliobox doctor`; the caller destroys it. Raises BackendUnavailable."""
    return await start_sandbox(backend, settings.limits.sandbox, settings.conversations.ready_timeout_s)


def tell(settings: Settings, report: BackendReport) -> None:
    """Log what is missing, and what is likely to be a mistake."""
    for name in settings.unknown:
        log.warning("unknown setting", name=name)
    for text in advice(settings, report.name):
        log.warning(text)
    for text in too_little(settings):
        log.error("no sandbox can be started", backend=report.name, detail=text)
    if not report.available:
        log.error("no sandbox can be started", backend=report.name, detail=report.detail)
    for wall in report.walls:
        if not wall.stands:
            log.warning("a wall is missing", wall=wall.name, detail=wall.detail)
    if report.isolation in ("shared-kernel", "none"):
        log.warning("sandboxes share the host's kernel", backend=report.name, isolation=report.isolation)


def check_exposure(settings: Settings, report: BackendReport, keyring: Keyring | None) -> None:
    """Where a wall is missing, refuse to serve other machines, and more than one tenant.

    Raises ConfigurationError. ``keyring`` is None where it cannot be used.
    """
    if report.loopback_only and not settings.api.loopback:
        missing = ", ".join(wall.name for wall in report.walls if not wall.stands)
        raise ConfigurationError(
            f"this host gives sandboxes no {missing}, so the service may bind to loopback only, not to "
            f"{settings.api.host}: bind to 127.0.0.1, or see `foliobox doctor` for what is missing"
        )
    if report.loopback_only and keyring is not None:
        keyring.confine()
