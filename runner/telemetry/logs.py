"""Structured logs: JSON lines for machines, short coloured lines on a terminal. Code and keys are never logged."""

from __future__ import annotations

import json as codec
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import structlog

from runner.telemetry.outlet import Outlet

_outlet: Outlet | None = None


def configure(level: str = "info", *, json: bool | None = None) -> None:
    """Set up logging for the process; ``json`` defaults to whether standard error is no terminal.

    Lines of libraries, from warnings on, go the same way.
    """
    global _outlet
    as_json = not sys.stderr.isatty() if json is None else json
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    _outlet = Outlet(sys.stderr, _dropped)
    logging.lastResort = logging.StreamHandler(_outlet)
    logging.lastResort.setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper(), logging.INFO)),
        logger_factory=structlog.WriteLoggerFactory(_outlet),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )


def drain() -> None:
    """Wait a bounded time until all lines have left; for whoever writes to standard error next."""
    if _outlet is not None:
        _outlet.settle()


def dropped() -> int:
    """Lines that found no room since the start."""
    return 0 if _outlet is None else _outlet.dropped


def _dropped(count: int) -> str:
    """The line that says that lines are missing, before the one that comes next."""
    when = datetime.now(UTC).isoformat()
    told = {"event": "log lines dropped", "count": count, "level": "warning", "timestamp": when}
    return codec.dumps(told) + "\n"


def logger(part: str) -> Any:
    """A logger whose lines carry the name of their part of the service."""
    return structlog.get_logger(part=part)


def bind(**fields: object) -> None:
    """Add fields to every line of the current request."""
    structlog.contextvars.bind_contextvars(**fields)


def unbind_all() -> None:
    """Forget the fields of the current request."""
    structlog.contextvars.clear_contextvars()
