"""Rows about ends: how soon a cell is interrupted, and how soon what it left behind is gone."""

from __future__ import annotations

import json
import threading
import time

from bench.lab import Chat, Lab, cell, execute_path
from bench.stats import Sample
from bench.warm import warm_chat
from bench.wire import Client, WireError

_ENDLESS = "while True: pass"
_COUNT = 250
_STUBBORN = f"""
import subprocess
stubborn = "trap '' INT TERM HUP QUIT USR1 USR2 PIPE ALRM; exec sleep 1000"
children = [subprocess.Popen(["sh", "-c", stubborn], start_new_session=True) for _ in range({_COUNT})]
print(sum(child.poll() is None for child in children))
"""
_RUNNING_S = 0.1


def interrupt(lab: Lab) -> Sample:
    """From the request to interrupt an endless loop to the result of the cell; two connections."""
    with warm_chat(lab) as chat, Client(chat.client.address) as other:
        return Sample(tuple(_interrupted(chat, other) for _ in range(lab.count(20, 5))))


def _interrupted(chat: Chat, other: Client) -> float:
    ended: list[tuple[float, bytes]] = []

    def wait() -> None:
        answer = other.call("POST", execute_path(chat.id), cell(_ENDLESS))
        ended.append((time.perf_counter(), answer.body))

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(_RUNNING_S)
    began = time.perf_counter()
    answer = chat.client.call("POST", f"/v1/conversations/{chat.id}/interrupt", b"{}").json()
    waiting.join()
    if not answer["interrupted"] or not ended or json.loads(ended[0][1]).get("outcome") != "interrupted":
        raise WireError(f"the cell was not interrupted: {answer}, {ended}"[:500])
    return (ended[0][0] - began) * 1000


def kill_250(lab: Lab) -> Sample:
    """What a call takes beyond the cell itself, when that leaves many processes of which each has a session."""
    values = []
    with warm_chat(lab) as chat:
        for _ in range(lab.count(5, 2)):
            began = time.perf_counter()
            result = chat.ok(_STUBBORN)
            took = (time.perf_counter() - began) * 1000
            if result["stdout"].strip() != str(_COUNT):
                raise WireError(f"not all processes were there: {result['stdout']!r}")
            values.append(took - result["duration_ms"])
    return Sample(tuple(values))
