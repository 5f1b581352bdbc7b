"""The composition root: the one place where settings become objects and objects are wired."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import Depends, FastAPI
from fastapi_offline import FastAPIOffline

from runner import __version__
from runner.api import errors, health, metrics, problems
from runner.api.auth import SCHEME
from runner.api.keyring import Keyring
from runner.api.links import open_signer
from runner.api.middleware import Gate
from runner.api.v1 import links
from runner.api.v1.routers import ROUTERS
from runner.backends import registry
from runner.backends.base import Backend, BackendReport
from runner.conversations.pool import start_sandbox
from runner.conversations.service import ConversationService
from runner.errors import ConfigurationError, FolioboxError
from runner.interpreter.client import SandboxClient
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
    settings.api.check()

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
        title="Foliobox",
        version=__version__,
        lifespan=lifespan,
        description="A sandbox runner and a document engine for chat gateways.",
    )
    app.state.start_error = None
    app.state.api_config = settings.api
    app.state.keyring = Keyring(settings.api)
    app.state.egress_network = settings.egress_network
    app.state.data_dir = settings.workspace.data_dir
    app.include_router(health.router)
    app.include_router(links.open_router)
    for router in (*ROUTERS, metrics.router):
        app.include_router(router, dependencies=[Depends(SCHEME)])
    errors.install(app)
    problems.describe(app)
    app.add_middleware(Gate, config=settings.api)
    return app


async def _start(settings: Settings, keyring: Keyring, stack: AsyncExitStack) -> ConversationService:
    """Open the store, choose the backend and start the service; ``stack`` undoes it in reverse."""
    store = await open_store(settings.workspace)
    stack.push_async_callback(store.close)
    backend, report = await choose_backend(settings)
    check_exposure(settings, report)
    workspaces = Workspaces(store, settings.workspace)
    owners = Owners(store, new_runner_id())
    await owners.start(exclusive=True)  # the local store's lock lets one runner in at a time
    stack.push_async_callback(owners.close)
    pressure = Pressure(settings.limits.floors, HostReader(settings.workspace.data_dir))
    service = ConversationService(
        backend, report, workspaces, owners, settings.conversations, settings.limits, pressure, keyring.tenant_limit
    )
    stack.push_async_callback(service.close)
    await service.start()
    collector = Collector(store, settings.workspace)
    stack.push_async_callback(collector.close)
    collector.start()
    log.info("ready", backend=report.name, image=report.image, available=report.available)
    return service


async def choose_backend(settings: Settings) -> tuple[Backend, BackendReport]:
    """The backend of this deployment and what its probe found."""
    backend = registry.create(settings.backend, settings.bubblewrap, settings.allow_unisolated)
    return backend, await backend.probe()


async def start_one_sandbox(backend: Backend, settings: Settings) -> SandboxClient:
    """A sandbox for `foliobox doctor`; the caller destroys it. Raises BackendUnavailable."""
    return await start_sandbox(backend, settings.limits.sandbox, settings.conversations.ready_timeout_s)


def check_exposure(settings: Settings, report: BackendReport) -> None:
    """Say what is missing, and refuse to serve others where a wall is missing. Raises ConfigurationError."""
    for name in settings.unknown:
        log.warning("unknown setting", name=name)
    if not report.available:
        log.error("no sandbox can be started", backend=report.name, detail=report.detail)
    for wall in report.walls:
        if not wall.stands:
            log.warning("a wall is missing", wall=wall.name, detail=wall.detail)
    if report.isolation in ("shared-kernel", "none"):
        log.warning("sandboxes share the host's kernel", backend=report.name, isolation=report.isolation)
    if report.loopback_only and not settings.api.loopback:
        missing = ", ".join(wall.name for wall in report.walls if not wall.stands)
        raise ConfigurationError(
            f"this host gives sandboxes no {missing}, so the service may bind to loopback only, not to "
            f"{settings.api.host}: bind to 127.0.0.1, or see `foliobox doctor` for what is missing"
        )
