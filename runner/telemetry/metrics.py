"""What is counted and measured, for Prometheus. Labels are words of this code: never an id, a name or a path of users.

One registry for the process, since one process is one service. Counters are added to where things happen; gauges
are set when somebody asks (``Gauges``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics import disable_created_metrics

from runner import __version__

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
NO_ROUTE: Final = "none"  # nothing at this address, or refused before it was looked up
_METHODS: Final = frozenset(("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"))
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_LAG: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY: Final = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
_INFO: Final = Gauge("foliobox_info", "Always 1; what runs here.", ["version"], registry=REGISTRY)
_INFO.labels(__version__).set(1)
_REQUESTS: Final = Counter(
    "foliobox_http_requests", "Requests answered.", ["method", "route", "status"], registry=REGISTRY
)
_DURATION: Final = Histogram(
    "foliobox_http_request_seconds",
    "From the head of a request to the end of its answer.",
    ["method", "route"],
    buckets=_SECONDS,
    registry=REGISTRY,
)
_RUNS: Final = Counter("foliobox_runs", "Runs that ended.", ["outcome"], registry=REGISTRY)
_RUN_DURATION: Final = Histogram("foliobox_run_seconds", "How long runs took.", buckets=_SECONDS, registry=REGISTRY)
_ERRORS: Final = Counter("foliobox_errors", "Errors that callers were told.", ["code"], registry=REGISTRY)
LOOP_LAG: Final = Histogram(
    "foliobox_event_loop_lag_seconds", "How late a timer of the service was.", buckets=_LAG, registry=REGISTRY
)
_LIVE: Final = Gauge("foliobox_sandboxes_live", "Sandboxes in use by conversations.", registry=REGISTRY)
_SPARES: Final = Gauge("foliobox_sandboxes_spare", "Warm sandboxes that wait to be used.", registry=REGISTRY)
_HITS: Final = Counter("foliobox_pool_hits", "Sandboxes given away that were warm spares.", registry=REGISTRY)
_MISSES: Final = Counter(
    "foliobox_pool_misses", "Sandboxes started for a request because no spare was ready.", registry=REGISTRY
)
_QUEUE: Final = Gauge(
    "foliobox_queue_length", "Requests that wait for a sandbox or for their conversation.", registry=REGISTRY
)
_EGRESS_REFUSED: Final = Counter(
    "foliobox_egress_refused", "Connections of sandboxes to the proxy beyond a bound.", ["bound"], registry=REGISTRY
)
_FREE: Final = Gauge("foliobox_store_free_bytes", "Bytes free where the store lies.", registry=REGISTRY)

Bound = Literal["sandbox", "all", "shared"]
"""Those of one sandbox, those of all together, and where all were in use what was cut for another's sake."""


@dataclass(frozen=True, slots=True)
class Gauges:
    """State at the moment of asking."""

    live: int
    spares: int
    queue: int
    store_free_bytes: int


def request(method: str, route: str, status: int, seconds: float) -> None:
    """A request was answered. ``route`` is the template; ``status`` 0: nobody was there any more."""
    known = method if method in _METHODS else "other"
    _REQUESTS.labels(known, route, f"{status // 100}xx" if status else NO_ROUTE).inc()
    _DURATION.labels(known, route).observe(seconds)


def run(outcome: str, seconds: float) -> None:
    """A run ended."""
    _RUNS.labels(outcome).inc()
    _RUN_DURATION.observe(seconds)


def pool(*, hit: bool) -> None:
    """A request that a spare would do for was given one, or had to have a sandbox started."""
    (_HITS if hit else _MISSES).inc()


def error(code: str) -> None:
    """A caller is told of an error."""
    _ERRORS.labels(code).inc()


def egress_refused(bound: Bound) -> None:
    """A connection of a sandbox to the proxy was not taken, or was cut."""
    _EGRESS_REFUSED.labels(bound).inc()


def exposition(gauges: Gauges) -> bytes:
    """Everything, in the text format."""
    _LIVE.set(gauges.live)
    _SPARES.set(gauges.spares)
    _QUEUE.set(gauges.queue)
    _FREE.set(gauges.store_free_bytes)
    return generate_latest(REGISTRY)
