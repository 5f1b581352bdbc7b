"""The HTTP of a gateway on Foliobox's ``/v1``: time-outs, repeats where a repeat does no harm, streams that are cut.

Copy it: it needs Python 3.11 and httpx, nothing of Foliobox.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import httpx

Say = Callable[[str, Mapping[str, Any]], object]

# A stream says something every 5 s at least, however long its run takes or waits, so silence means that it was cut.
SILENCE_S: Final = 20.0
# A call that does not stream must outwait the runner: SANDBOX_QUEUE_TIMEOUT_SECONDS + the run's limit + 30 s.
WHOLE: Final = httpx.Timeout(300, connect=5)
PATIENCE_S: Final = 180.0  # how long one call may go on failing before the user is told
AGAIN: Final = {429, 503}  # nothing was begun, or the fault is this moment's: the same request may be sent again
LATER: Final = {  # the same, where a stream had begun already: its status is 200
    "busy", "capacity_reached", "queue_full", "backend_unavailable", "sandbox_lost", "agent_protocol", "store_failed",
    "host_pressure", "stopping",
}  # fmt: skip
EVENTS: Final = {"Accept": "text/event-stream"}


def silent(name: str, event: Mapping[str, Any]) -> None:
    """For whoever wants only the result."""


class Problem(Exception):
    """An answer that is no success: its status, its stable code, and what it asks to change."""

    def __init__(self, status: int, code: str, detail: str, retry_after: str | None = None) -> None:
        super().__init__(f"{status} {code}: {detail}")
        self.status, self.code, self.detail, self.retry_after = status, code, detail, retry_after

    @classmethod
    def of(cls, answer: httpx.Response) -> Problem:
        """What an answer says, also one of a proxy in between that speaks no problem documents."""
        try:
            body = answer.json()
            code, detail = str(body["code"]), str(body["detail"])
        except (ValueError, KeyError, TypeError):
            code, detail = "", answer.text[:200]
        return cls(answer.status_code, code, detail, answer.headers.get("retry-after"))


class Patience:
    """How long one call may go on failing, and how long to wait between its tries."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Something came: the time begins anew."""
        self._end, self._pause = time.monotonic() + self._seconds, 0.1

    def wait(self, error: Exception) -> None:
        """Until the next try. Raises ``error`` where trying again cannot help, or when the time is over."""
        pause, self._pause = self._pause, min(self._pause * 2, 5.0)
        if isinstance(error, Problem):
            if error.status not in AGAIN:
                raise error
            if error.retry_after and error.retry_after.isdecimal():
                pause = float(error.retry_after)
        if time.monotonic() + pause > self._end:
            raise error
        time.sleep(pause)


class Foliobox:
    """The HTTP of it: one pool of connections, time-outs, and repeats where a repeat does no harm."""

    def __init__(self, url: str, key: str, patience_s: float = PATIENCE_S) -> None:
        headers, limits = {"Authorization": f"Bearer {key}"}, httpx.Timeout(SILENCE_S, connect=5)
        self._http = httpx.Client(base_url=url, headers=headers, timeout=limits)
        self._patience_s = patience_s

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def look(self, path: str) -> httpx.Response:
        """One GET, whatever its status: for what may be absent, or is told with 503 too."""
        return self._http.get(path)

    def call(self, method: str, path: str, *, repeat: bool = True, **request: Any) -> httpx.Response:
        """Send until it is answered; not again with ``repeat=False``, once sent. Raises Problem, TransportError."""
        patience = Patience(self._patience_s)
        while True:
            try:
                answer = self._http.request(method, path, **request)
                if answer.status_code < 400:
                    return answer
                patience.wait(Problem.of(answer))
            except httpx.ConnectError as error:  # nothing was sent: it is being restarted
                patience.wait(error)
            except httpx.TransportError as error:
                if not repeat:
                    raise
                patience.wait(error)

    def run(self, conversation: str, body: Mapping[str, Any], key: str, say: Say) -> dict[str, Any]:
        """Run code; gives the result. ``key`` makes sure that it runs once, however often the connection is cut.

        ``say`` gets every event once. Raises Problem, TransportError.
        """
        place, told, execution = f"/v1/conversations/{conversation}", 0, ""
        patience = Patience(self._patience_s)
        while True:
            error: Exception = httpx.RemoteProtocolError("the stream ended without its result")
            try:
                for name, event in self._listen(place, body, key, execution, told):
                    execution = event["execution_id"] or execution
                    if name == "error":
                        if event["code"] == "events_dropped":  # we were too slow for a flood
                            told = event["oldest"] - 1
                        else:  # it waited, and found no place: the key is free
                            status = 503 if event["code"] in LATER else 500
                            execution, error = "", Problem(status, event["code"], event["detail"])
                    elif event["seq"] > told:
                        patience.renew()
                        told = event["seq"]
                        say(name, event)
                        if name == "done":
                            return dict(event["result"])
            except (httpx.TransportError, Problem) as cut:  # cut off: the run goes on without us
                error = cut
            patience.wait(error)

    def _listen(
        self, place: str, body: Mapping[str, Any], key: str, execution: str, told: int
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Begin a run, or attach again to one that was begun: its events above ``told``."""
        if execution:
            address = f"{place}/executions/{execution}"
            opened = self._http.stream("GET", f"{address}/events", params={"after": told}, headers=EVENTS)
        else:
            headers = {**EVENTS, "Idempotency-Key": key}
            opened = self._http.stream("POST", f"{place}/execute", json=dict(body), headers=headers)
        with opened as answer:
            if answer.status_code >= 400:
                answer.read()
                raise Problem.of(answer)
            name, rest = "", b""
            for piece in answer.iter_bytes():
                *lines, rest = (rest + piece).split(b"\n")  # not splitlines(): output may hold U+2028
                for line in lines:
                    kind, _, value = line.partition(b": ")
                    if kind == b"event":
                        name = value.decode()
                    elif kind == b"data":
                        yield name, json.loads(value)
