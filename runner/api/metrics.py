"""``GET /metrics``: counters and gauges for Prometheus, for keys with the scope ``metrics``."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.responses import Response

from runner.api.problems import only
from runner.conversations.service import ConversationService
from runner.telemetry import metrics

router = APIRouter(tags=["metrics"])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, **only(401, 403)})
async def get_metrics(request: Request) -> Response:
    """Requests, runs, errors, sandboxes, queue, store and event loop, in Prometheus' text format."""
    service: ConversationService = request.app.state.service
    gauges = metrics.Gauges(
        live=service.live,
        spares=service.spares,
        queue=service.admission.waiting,
        store_free_bytes=await asyncio.to_thread(_free, request.app.state.data_dir),
    )
    return Response(metrics.exposition(gauges), media_type=metrics.CONTENT_TYPE)


def _free(folder: Path) -> int:
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize
