"""``foliobox serve``: the HTTP service."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from typing import Annotated

import typer
import uvicorn
import uvloop

from runner.app import create_app
from runner.settings import Settings
from runner.telemetry import logs


def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind; default 127.0.0.1 or SANDBOX_BIND.")] = None,
    port: Annotated[int | None, typer.Option(help="Port; default 8000 or SANDBOX_BIND.")] = None,
) -> None:
    """Serve sandboxes over HTTP until SIGTERM or SIGINT."""
    settings = Settings.from_env(os.environ)
    api = replace(settings.api, host=host or settings.api.host, port=settings.api.port if port is None else port)
    settings = replace(settings, api=api)
    logs.configure(settings.log_level)
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings),
            host=api.host,
            port=api.port,
            http="httptools",
            lifespan="on",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=20,
        )
    )
    # uvicorn raises what stopped it once more when it is done; a stop that was asked for is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    # Sandboxes die with the thread that spawned them, so the loop runs in the main thread.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(server.serve())
    if not server.started:
        raise SystemExit(1)
