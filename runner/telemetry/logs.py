"""Structured logs: JSON lines for machines, short coloured lines on a terminal. Code and keys are never logged."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure(level: str = "info", *, json: bool | None = None) -> None:
    """Set up logging for the process; ``json`` defaults to whether standard error is no terminal."""
    as_json = not sys.stderr.isatty() if json is None else json
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper(), logging.INFO)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def logger(part: str) -> Any:
    """A logger whose lines carry the name of their part of the service."""
    return structlog.get_logger(part=part)


def bind(**fields: object) -> None:
    """Add fields to every line of the current request."""
    structlog.contextvars.bind_contextvars(**fields)


def unbind_all() -> None:
    """Forget the fields of the current request."""
    structlog.contextvars.clear_contextvars()
