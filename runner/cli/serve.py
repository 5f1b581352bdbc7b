"""``foliobox serve``: the HTTP service."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated

import typer
import uvicorn
import uvloop
from fastapi import FastAPI

from runner.api import connections
from runner.api.config import ApiConfig
from runner.api.oneshot.own import own_app
from runner.app import create_app
from runner.cli.side_server import SideServer
from runner.errors import ConfigurationError
from runner.leases.config import BIND
from runner.settings import Settings
from runner.telemetry import logs

_BACKLOG = 1024
_TURN_S = 0.0002  # that a thread computes while others wait; by default 5 ms, which every hop of a request would take
log = logs.logger("serve")
_OWN_FILES = 512  # of the store, of sandboxes and of the log, beside those of connections


class Server(uvicorn.Server):
    """A server that goes on answering while the runs that were begun come to their end."""

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Callable[[], Coroutine[None, None, None]],
        address: str,
        side: SideServer | None = None,
    ) -> None:
        super().__init__(config)
        self._drain, self._address, self._side = drain, address, side

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say where once requests are answered."""
        await super().startup(sockets)
        if self.started:
            log.info("bound", address=self._address)
            if self._side is not None:
                await self._side.begin()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new work, let runs end, then close. A second signal does not wait."""
        draining = asyncio.ensure_future(self._drain())
        while not draining.done() and not self.force_exit:
            await asyncio.wait([draining], timeout=0.1)
        if self._side is not None:
            await self._side.end()
        await super().shutdown(sockets)


def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind; default 127.0.0.1 or SANDBOX_BIND.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; default 8000 or SANDBOX_BIND.")] = None,
) -> None:
    """Serve sandboxes over HTTP until SIGTERM or SIGINT."""
    settings = Settings.from_env(os.environ)
    api = replace(settings.api, host=host or settings.api.host, port=settings.api.port if port is None else port)
    settings = replace(settings, api=api)
    logs.configure(settings.log_level)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # what matters of it is said below, in one line
    app = create_app(settings)

    async def drain() -> None:
        service = app.state.service
        log.info("stopping", runs=service.runs.active(), sandboxes=service.live)
        await service.drain()

    raise_open_files(settings.connections.max_connections)
    listener = listen(api)
    connections.prepare(listener, settings.connections)
    server = Server(
        _configured(app, settings),
        drain,
        f"http://{api.host}:{listener.getsockname()[1]}",
        _side(app, settings),
    )
    # uvicorn raises what stopped it once more when it is done; a stop that was asked for is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    ready_interpreter()
    # Sandboxes die with the thread that spawned them, so the loop runs in the main thread.
    with contextlib.suppress(SystemExit), asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(server.serve(sockets=[listener]))
    if server.started:
        log.info("stopped")
    logs.drain()
    if not server.started:
        raise app.state.start_error or ConfigurationError("the service could not start; see its log")


def _configured(app: FastAPI, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=connections.protocol(settings.connections),  # type: ignore[arg-type]  # it is only called
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
    )


def _side(app: FastAPI, settings: Settings) -> SideServer | None:
    """The one-shot surface's own listener, where it has one. Raises ConfigurationError."""
    bind = settings.leases.bind
    if bind is None:
        return None
    listener = listen(replace(settings.api, host=bind[0], port=bind[1]), BIND)
    connections.prepare(listener, settings.connections)
    config = _configured(own_app(app, needs_no_key=settings.leases.open), settings)
    return SideServer(config, listener, f"http://{bind[0]}:{listener.getsockname()[1]}")


def ready_interpreter() -> None:
    """Keep Python itself from holding up the loop: with collections of garbage, and with other threads' turns."""
    gc.freeze()  # what is here now stays: no collection needs to look at it again
    sys.setswitchinterval(_TURN_S)


def listen(api: ApiConfig, setting: str = "SANDBOX_BIND") -> socket.socket:
    """A listening socket. Raises ConfigurationError when the address cannot be had."""
    with contextlib.ExitStack() as undo:
        try:
            family, kind, _, _, address = socket.getaddrinfo(api.host, api.port, type=socket.SOCK_STREAM)[0]
            sock = undo.enter_context(socket.socket(family, kind))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(_BACKLOG)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "it is in use by another program" if taken else error.strerror
            raise ConfigurationError(
                f"cannot listen on {api.host}:{api.port} ({why}): choose another address with --host and --port, or "
                f"with {setting}"
            ) from error
        undo.pop_all()
    return sock


def raise_open_files(max_connections: int) -> None:
    """As many open files as this process may have: the usual soft limit of 1,024 is less than its connections
    need. Sandboxes set a limit of their own. Raises ConfigurationError where even the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max_connections + _OWN_FILES
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise ConfigurationError(
            f"this process may open {hard} files, but {connections.MAX_CONNECTIONS}={max_connections} needs {needed}: "
            "raise the limit (ulimit -Hn, LimitNOFILE of systemd) or allow fewer connections"
        )
    if soft < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard == resource.RLIM_INFINITY else hard, hard))
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"this process may not open the {needed} files that {connections.MAX_CONNECTIONS}={max_connections} "
                f"needs ({error}): allow fewer connections"
            ) from error
