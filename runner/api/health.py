"""What is true of this deployment, for gateways and orchestrators; open to everybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from runner import __version__
from runner.backends.base import BackendReport
from runner.conversations.service import ConversationService

router = APIRouter(tags=["health"])


def describe(
    report: BackendReport,
    pool: dict[str, int | bool],
    pressure: dict[str, str],
    capabilities: Sequence[str] = ("python_execute",),
) -> dict[str, Any]:
    """The body of ``/healthz``; the same shape whether a sandbox can be started or not.

    ``egress`` is left out while nobody knows: gateways read it once and take its absence for "there may be some".
    """
    return {
        "status": "ok" if report.available else "unavailable",
        "ok": report.available,
        **({} if report.egress is None else {"egress": report.egress}),
        "egress_detail": report.egress_detail,
        "backend": report.name,
        "runtime": report.runtime or None,
        "isolation": report.isolation,
        "walls": {wall.name: wall.stands for wall in report.walls},
        "docker": report.engine,
        "image": report.image,
        "image_ready": report.image_ready,
        "version": __version__,
        "pool": pool,
        "pressure": pressure,
        "capabilities": list(capabilities) if report.available else [],
        "detail": report.detail,
    }


def report_of(request: Request) -> BackendReport:
    """What the backend can do; nothing, where this host can never leave free what a sandbox must leave."""
    service: ConversationService = request.app.state.service
    never: Sequence[str] = request.app.state.too_little
    report = service.report
    return replace(report, available=False, detail="; ".join(never)) if never and report.available else report


@router.get("/healthz", responses={503: {"description": "No sandbox can be started; the body has the same shape."}})
async def healthz(request: Request) -> JSONResponse:
    """State of the backend: 200 when sandboxes can be started, else 503 with the same shape.

    A host under pressure is 200, as it passes; a reserve that this host can never leave is 503.
    """
    service: ConversationService = request.app.state.service
    report = report_of(request)
    pool: dict[str, int | bool] = {"ready": service.spares, "size": service.pool_size, "capped": service.pool_capped}
    body = describe(report, pool, service.pressure, request.app.state.catalogue.names)
    return JSONResponse(body, 200 if report.available else 503)


@router.get("/livez")
async def livez() -> JSONResponse:
    """The process answers."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", responses={503: {"description": "No sandbox can be started, or the runner is stopping."}})
async def readyz(request: Request) -> JSONResponse:
    """Requests can be served: 200, else 503: ``unavailable``, or ``stopping`` while runs come to their end.

    A host under pressure is ready: what has a sandbox goes on, and pressure passes.
    """
    service: ConversationService = request.app.state.service
    status = "stopping" if service.stopping else "ok" if report_of(request).available else "unavailable"
    return JSONResponse({"status": status}, 200 if status == "ok" else 503)
