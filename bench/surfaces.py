"""Rows of the two surfaces that gateways speak today: sessions and one-shot, each a call as such a gateway sends it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.lab import Lab
from bench.service import Service
from bench.stats import Sample, repeat, timed
from bench.steps import IMPORT, PRINT, put_body
from bench.wire import Client, WireError


def sessions_exec(lab: Lab) -> Sample:
    """A cell of a session that has run some."""
    return _cells(lab.service(), PRINT, lab.count(300, 60))


def sessions_put(lab: Lab) -> Sample:
    """10 MiB through ``/files``, durable."""
    return _puts(lab.service(), lab.count(12, 4))


def run_leased(lab: Lab) -> Sample:
    """A script in a sandbox that was leased before."""
    return _leased(lab.service(), lab.count(100, 20))


def run_single(lab: Lab) -> Sample:
    """A script in a sandbox of its own, begun when every spare is ready again."""
    return _single(lab.service(), lab.count(12, 4))


def runc_sessions_exec(lab: Lab) -> Sample:
    """The same as ``sessions_exec`` on Docker."""
    return _cells(lab.service(runtime="runc"), PRINT, lab.count(300, 60))


def runc_sessions_import(lab: Lab) -> Sample:
    """The imports that most cells begin with, in an interpreter that is kept."""
    return _cells(lab.service(runtime="runc"), IMPORT, lab.count(300, 60))


def runc_sessions_put(lab: Lab) -> Sample:
    """The same as ``sessions_put`` on Docker."""
    return _puts(lab.service(runtime="runc"), lab.count(12, 4))


def runc_run_leased(lab: Lab) -> Sample:
    """The same as ``run_leased`` on Docker."""
    return _leased(lab.service(runtime="runc"), lab.count(100, 20))


def runc_run_single(lab: Lab) -> Sample:
    """The same as ``run_single`` on Docker."""
    return _single(lab.service(runtime="runc"), lab.count(8, 3))


def _cells(service: Service, code: str, count: int) -> Sample:
    with _session(service) as (client, identifier):
        body = json.dumps({"session_id": identifier, "code": code}).encode()
        sample = repeat(lambda: client.call("POST", "/exec", body), count, 10)
        _ended(client.call("POST", "/exec", body).json())
    return sample


def _puts(service: Service, count: int) -> Sample:
    with _session(service) as (client, identifier):
        bodies = [put_body("session_id", identifier) for _ in range(count + 1)]
        waiting = iter(bodies)
        return repeat(lambda: client.call("POST", "/files", next(waiting)).json(), count, 1)


@contextmanager
def _session(service: Service) -> Iterator[tuple[Client, str]]:
    """A session whose interpreter is there, and no spare being started meanwhile."""
    with service.client() as client:
        identifier = client.call("POST", "/sessions", b"{}").json()["session_id"]
        body = json.dumps({"session_id": identifier, "code": PRINT}).encode()
        _ended(client.call("POST", "/exec", body).json())
        service.await_spares()
        try:
            yield client, identifier
        finally:
            client.call("DELETE", f"/sessions/{identifier}", b'{"discard": true}').json()


def _leased(service: Service, count: int) -> Sample:
    with service.client() as client:
        lease = _run(client, keep_alive=True)["container_id"]
        if not lease:
            raise WireError("no lease was given")
        service.await_spares()
        sample = repeat(lambda: _run(client, keep_alive=True, container_id=lease), count, 5)
        client.call("DELETE", f"/container/{lease}").json()
    return sample


def _single(service: Service, count: int) -> Sample:
    values = []
    with service.client() as client:
        for _ in range(count):
            service.await_spares()
            values.append(timed(lambda: _run(client)))
    return Sample(tuple(values))


def _run(client: Client, **fields: Any) -> dict[str, Any]:
    body = {"language": "python", "code": PRINT, **fields}
    return _ended(client.call("POST", "/run", json.dumps(body).encode()).json())


def _ended(result: dict[str, Any]) -> dict[str, Any]:
    """What a call of either surface gave. Raises WireError when its script did not succeed."""
    if result.get("exit_code") != 0:
        raise WireError(f"it did not succeed: {json.dumps(result)[:500]}")
    return result
