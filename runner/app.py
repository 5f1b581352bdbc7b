"""The composition root: the one place where settings become objects and objects are wired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline

from runner import __version__
from runner.api import errors, health, metrics, problems, shapes
from runner.api.auth import SCHEME
from runner.api.head import Head
from runner.api.keyring import Keyring
from runner.api.links import check_secret, open_signer
from runner.api.middleware import Gate
from runner.api.oneshot import routes as oneshot_routes
from runner.api.sessions.routers import ROUTERS as SESSION_ROUTERS
from runner.api.sessions.shape import SessionsShape
from runner.api.tools import routes as tool_routes
from runner.api.v1 import links
from runner.api.v1.routers import ROUTERS
from runner.backends import registry
from runner.backends.base import Backend, BackendReport
from runner.backends.choice import Choice
from runner.backends.watch import Watch
from runner.conversations.assignments import Assignments
from runner.conversations.pool import start_sandbox
from runner.conversations.service import ConversationService
from runner.egress.client import Client
from runner.errors import ConfigurationError, FolioboxError
from runner.interpreter.client import SandboxClient
from runner.leases.config import AUTH, BIND
from runner.leases.service import Leases
from runner.limits import fit
from runner.limits.host import HostReader
from runner.limits.pressure import Pressure
from runner.objects.service import ObjectStorage
from runner.sessions.service import SessionService
from runner.settings import Settings
from runner.telemetry import loop_lag
from runner.telemetry.logs import logger
from runner.tools.base import Deployment
from runner.tools.catalogue import Catalogue
from runner.workspace.collect import Collector
from runner.workspace.owners import Owners, new_runner_id
from runner.workspace.registry import open_store
from runner.workspace.workspaces import Workspaces

log = logger("app")


def create_app(settings: Settings, client: Client | None = None) -> FastAPI:
    """The application; its store and backend are opened when it starts serving. Raises ConfigurationError.

    ``client`` is what fetches from the web, where it is not the guarded one on this machine's network.
    """
    for check in checks(settings):
        check()
    keyring = Keyring(settings.api)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                app.state.service, workspaces = await _start(settings, app.state.keyring, stack)
                app.state.sessions = _sessions(settings, app.state.service, workspaces, stack)
                app.state.leases = _leases(settings, app.state.service, stack)
                app.state.catalogue = _catalogue(settings, app.state.service)
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
    app.state.fetch_client = client or Client(settings.fetch)
    api = replace(settings.api, open_oneshot=settings.leases.open_on(settings.api.loopback))
    app.state.api_config = api
    app.state.too_little = too_little(settings)
    app.state.keyring = keyring
    app.state.data_dir = settings.workspace.data_dir
    app.include_router(health.router)
    app.include_router(links.open_router)
    for router in (*ROUTERS, *SESSION_ROUTERS, tool_routes.catalogue_router, tool_routes.router, metrics.router):
        app.include_router(router, dependencies=[Depends(SCHEME)])
    app.include_router(oneshot_routes.router, dependencies=[] if api.open_oneshot else [Depends(SCHEME)])
    shapes.register(SessionsShape())
    errors.install(app)
    problems.describe(app)
    app.add_middleware(Head)
    app.add_middleware(Gate, config=api)
    return app


def _catalogue(settings: Settings, service: ConversationService) -> Catalogue:
    """The tools that are offered as long as this process lives, by what is known when it has started."""
    report = service.report
    return Catalogue(Deployment(report.egress, report.egress_detail, settings.fetch))


def _sessions(
    settings: Settings, service: ConversationService, workspaces: Workspaces, stack: AsyncExitStack
) -> SessionService:
    """The service of the sessions surface, begun."""
    objects = ObjectStorage(settings.objects, settings.workspace.data_dir)
    stack.push_async_callback(objects.close)
    sessions = SessionService(service, workspaces, objects, settings.sessions)
    stack.push_async_callback(sessions.close)
    sessions.start()
    return sessions


def _leases(settings: Settings, service: ConversationService, stack: AsyncExitStack) -> Leases:
    """The service of the one-shot surface, begun."""
    leases = Leases(service, settings.leases, settings.workspace.data_dir / "leases")
    stack.push_async_callback(leases.close)
    leases.start()
    return leases


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
    told += settings.sessions.advice()
    for name, near in settings.misspelt:
        told.append(f"{name} is not a setting; did you mean {near}?")
    if settings.egress.network and not settings.egress.proxy:
        told.append("SANDBOX_EGRESS_NETWORK is set, but SANDBOX_EGRESS_PROXY is not: sandboxes are told of no proxy")
    if settings.egress.proxy and not settings.egress.network:
        told.append("SANDBOX_EGRESS_PROXY is set, but SANDBOX_EGRESS_NETWORK is not: sandboxes have no network")
    if settings.leases.open and not settings.api.loopback and settings.leases.bind is None:
        told.append(
            f"{AUTH}=none opens nothing on {settings.api.host}: set {BIND} to an address that only the gateway reaches"
        )
    asked, most = settings.conversations.pool_size, settings.conversations.max_live
    if asked > most:
        told.append(f"SANDBOX_POOL_SIZE={asked} is more than SANDBOX_MAX_SESSIONS={most}: {most} spares are kept")
    return told


async def _start(settings: Settings, keyring: Keyring, stack: AsyncExitStack) -> tuple[ConversationService, Workspaces]:
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
    return service, workspaces


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


async def start_one_sandbox(backend: Backend, settings: Settings, *, network: bool = False) -> SandboxClient:
    """A sandbox for a command; the caller destroys it. Raises BackendUnavailable."""
    ready_s = settings.conversations.ready_timeout_s
    return await start_sandbox(backend, settings.limits.sandbox, ready_s, network=network)


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
    if settings.egress.wanted:
        tell_egress = log.info if report.egress and not report.network.open else log.warning
        tell_egress("egress", on=report.egress, detail=report.egress_detail)
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
    if report.loopback_only and (settings.leases.open or not settings.leases.bound_to_loopback):
        raise ConfigurationError(
            f"this host gives sandboxes not all walls, so {AUTH}=none and a {BIND} beyond loopback are refused: see "
            "`foliobox doctor` for what is missing"
        )
    if report.loopback_only and keyring is not None:
        keyring.confine()
