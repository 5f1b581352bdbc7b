"""Rows of a service under load: durable throughput, large files, many files, a crowd, a restart, a bad neighbour.

Memory rows give the growth of the service's peak resident memory over what it had when the row began.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Final

import uvloop

from bench.fresh import at_once
from bench.lab import Chat, Lab, execute_path
from bench.processes import forget_peak, peak_mib
from bench.service import Service
from bench.stats import Sample, repeat, timed
from bench.warm import PRINT, rounds_of, warm_chat
from bench.wire import Address, Client

_LARGE: Final = 100 << 20
_KNOWN: Final = 1000
_CROWD: Final = 100
_WRITE: Final = "import uuid; open('outputs/note.txt', 'w').write(uuid.uuid4().hex)"
_MANY: Final = """
import uuid
for n in range({count}):
    with open(f'scratch-{{n}}.txt', 'w') as file:
        file.write(uuid.uuid4().hex)
"""
_FLOOD: Final = """
import os
block = b'x' * (1 << 20)
for _ in range({mib}):
    os.write(1, block)
"""
_SPIN: Final = """
import os
for _ in range(8):
    if not os.fork():
        while True:
            pass
block = b'x' * (1 << 20)
while True:
    os.write(1, block)
"""


def write_100mib(lab: Lab) -> Sample:
    """A file of 100 MiB written and synced by this process: what the disk itself takes."""
    content = os.urandom(_LARGE)
    place = lab.folder / "floor.bin"

    def once() -> None:
        with place.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        place.unlink()

    return repeat(once, lab.count(5, 2), 1)


def put_100mib(lab: Lab) -> Sample:
    """Uploads of 100 MiB, each with new content."""
    return _large(lab)[0]


def put_100mib_memory(lab: Lab) -> Sample:
    """What they grow the service by."""
    return _large(lab)[1]


def get_100mib(lab: Lab) -> Sample:
    """Downloads of 100 MiB."""
    return _large(lab)[2]


def get_100mib_memory(lab: Lab) -> Sample:
    """What they grow the service by."""
    return _large(lab)[3]


def _large(lab: Lab) -> tuple[Sample, Sample, Sample, Sample]:
    return lab.once("large", lambda: _measure_large(lab))


def _measure_large(lab: Lab) -> tuple[Sample, Sample, Sample, Sample]:
    service, count = lab.service(), lab.count(5, 2)
    contents = iter([os.urandom(_LARGE) for _ in range(count)])
    with warm_chat(lab) as chat:
        put, put_growth = _growing(service, lambda: chat.put("uploads/large.bin", next(contents)), count)
        get, get_growth = _growing(service, lambda: len(chat.get("uploads/large.bin")), count)
    return put, put_growth, get, get_growth


def _growing(service: Service, action: Callable[[], object], count: int) -> tuple[Sample, Sample]:
    before = forget_peak(service.pid)
    sample = repeat(action, count)
    return sample, Sample((max(0.0, peak_mib(service.pid) - before),), f"after {count} times")


def throughput_durable(lab: Lab) -> Sample:
    """Calls a second over eight conversations, each of which changes a file and is durable when it answers."""
    return rounds_of(lab, _WRITE)


def commit_1000(lab: Lab) -> Sample:
    """A cell that makes 1,000 small files, all of them new."""
    with warm_chat(lab) as chat:
        return repeat(lambda: chat.ok(_MANY.format(count=1000)), lab.count(5, 2), 1)


def commit_19000(lab: Lab) -> Sample:
    """A cell that makes nearly as many files as a workspace may have."""
    return Sample(tuple(_commit_19000(lab) for _ in range(lab.count(3, 1))))


def _commit_19000(lab: Lab) -> float:
    with warm_chat(lab) as chat:
        return timed(lambda: chat.ok(_MANY.format(count=19_000)))


def flood_memory(lab: Lab) -> Sample:
    """What a cell that writes 10 GiB to standard output grows the service by."""
    service = lab.service()
    mib = lab.count(10 << 10, 1 << 10)
    with warm_chat(lab) as chat:
        before = forget_peak(service.pid)
        began = time.perf_counter()
        result = chat.ok(_FLOOD.format(mib=mib))
        took = time.perf_counter() - began
    assert result["stdout_bytes"] == mib << 20
    return Sample((max(0.0, peak_mib(service.pid) - before),), f"{mib} MiB in {took:.0f} s")


def restart_1000(lab: Lab) -> Sample:
    """From the start of a killed service to a complete list of its 1,000 conversations."""
    service = Service(lab.folder / "restart", pool=0)
    try:
        with service.client() as client:
            for _ in range(_KNOWN):
                Chat(client).put("uploads/a.txt", b"kept")
        values = []
        for _ in range(lab.count(3, 1)):
            service.kill()
            values.append(timed(lambda: _start_and_list(service)))
        return Sample(tuple(values), "killed, not stopped; without spares")
    finally:
        service.stop()


def _start_and_list(service: Service) -> None:
    service.start()
    found: list[object] = []
    after = ""
    with service.client() as client:
        while True:
            page = client.call("GET", f"/v1/conversations?limit=500{after}").json()
            found += page["conversations"]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
    assert len(found) == _KNOWN, f"{len(found)} conversations"


def new_100(lab: Lab) -> Sample:
    """A hundred new conversations at once, with the default pool: each call until its answer."""
    service = lab.service()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        values = loop.run(at_once(service.address, lab.count(_CROWD, 20)))
    return Sample(tuple(values), f"all {len(values)} answered")


def beside_quiet(lab: Lab) -> Sample:
    """A warm cell, the conversation's neighbour doing nothing."""
    return _beside(lab)[0]


def beside_hostile(lab: Lab) -> Sample:
    """The same while the neighbour spins in nine processes and floods its output."""
    return _beside(lab)[1]


def _beside(lab: Lab) -> tuple[Sample, Sample]:
    return lab.once("beside", lambda: _measure_beside(lab))


def _measure_beside(lab: Lab) -> tuple[Sample, Sample]:
    with warm_chat(lab) as chat, warm_chat(lab) as other:
        count = lab.count(300, 60)
        quiet = repeat(lambda: chat.send(PRINT), count, 10)
        stop = threading.Event()
        attack = threading.Thread(target=_attack, args=(lab.service().address, other.id, stop))
        attack.start()
        try:
            time.sleep(1)  # let it come to full strength
            hostile = repeat(lambda: chat.send(PRINT), count)
        finally:
            stop.set()
            attack.join()
    return quiet, hostile


def _attack(address: Address, identifier: str, stop: threading.Event) -> None:
    body = json.dumps({"code": _SPIN, "timeout_ms": 3000}).encode()
    with Client(address) as client:
        while not stop.is_set():
            client.call("POST", execute_path(identifier), body).json()
