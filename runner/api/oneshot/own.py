"""The one-shot surface alone, for a listener of its own: its two routes and ``/healthz``, over the same services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from fastapi import FastAPI

from runner.api import errors, health
from runner.api.config import ApiConfig
from runner.api.middleware import Gate
from runner.api.oneshot.routes import router


def own_app(main: FastAPI, *, needs_no_key: bool) -> FastAPI:
    """An application beside ``main``, which must have started when this one does."""
    config: ApiConfig = replace(main.state.api_config, open_oneshot=needs_no_key)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        for name, value in main.state._state.items():
            setattr(app.state, name, value)
        app.state.api_config = config
        yield

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan)
    app.add_api_route("/healthz", health.healthz, methods=["GET"])
    app.include_router(router)
    errors.install(app)
    app.add_middleware(Gate, config=config)
    return app
