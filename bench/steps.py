"""Peers: what the runners that gateways use today do for each call, as commands of Docker on the same machine.

The runner of the sessions protocol keeps a container a session and starts a command of Docker for every step: for a
cell one to see that the container runs and six in it, for a file one and three. Its own HTTP and Python are left out,
in its favour.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
from collections.abc import Iterator

from bench.containers import container, docker
from bench.lab import Lab
from bench.stats import Sample, repeat

PRINT = "print(1)"
IMPORT = "import pandas, matplotlib.pyplot"
SIZE = 10 << 20
_OPTIONS = (
    "--user", "1000:1000", "--workdir", "/workspace", "--env", "MPLCONFIGDIR=/home/sandbox/.config/matplotlib",
    "--tmpfs", "/workspace:rw,uid=1000,gid=1000,size=512m", "--tmpfs", "/home/sandbox:rw,uid=1000,gid=1000,size=256m",
)  # fmt: skip
_OUTPUTS = ("find", "/workspace/outputs", "-type", "f", "-printf", "%p\\t%T@ %s\\n")
_SWEEP = "for p in /proc/[0-9]*; do grep -qs {token} $p/environ && kill -9 ${{p#/proc/}}; done; true"


def exec_steps(lab: Lab) -> Sample:
    """A cell that prints, in six commands."""
    with _session() as name:
        return repeat(lambda: _cell(name, PRINT), lab.count(20, 4), 1)


def import_steps(lab: Lab) -> Sample:
    """A cell with the imports that most begin with: each is a new Python process."""
    with _session() as name:
        return repeat(lambda: _cell(name, IMPORT), lab.count(10, 3), 1)


def docker_exec_import(lab: Lab) -> Sample:
    """The same imports in one command."""
    with _session() as name:
        return repeat(lambda: docker("exec", name, "python", "-c", IMPORT), lab.count(10, 3), 1)


def put_steps(lab: Lab) -> Sample:
    """10 MiB that came as Base64 in JSON, its path looked at, written through a pipe."""
    with _session() as name:
        bodies = [put_body("session_id", name) for _ in range(lab.count(10, 3) + 1)]
        waiting = iter(bodies)
        return repeat(lambda: _put(name, next(waiting)), len(bodies) - 1, 1)


def put_body(id_field: str, identifier: str) -> bytes:
    """A request to store 10 MiB that nobody has yet."""
    content = base64.b64encode(os.urandom(SIZE)).decode()
    return json.dumps({id_field: identifier, "path": "uploads/data.bin", "data_base64": content}).encode()


@contextlib.contextmanager
def _session() -> Iterator[str]:
    with container(*_OPTIONS) as name:
        docker("exec", name, "mkdir", "-p", "/workspace/uploads", "/workspace/outputs")
        yield name


def _cell(name: str, code: str) -> None:
    token = secrets.token_hex(16)
    place = f"/tmp/cell-{token}.py"
    _running(name)
    docker("exec", "-i", name, "sh", "-c", f"cat > {place}", given=code.encode())
    docker("exec", name, *_OUTPUTS)
    docker("exec", "-e", f"CELL={token}", name, "timeout", "--kill-after=2s", "120s", "python", place)
    docker("exec", name, "sh", "-c", _SWEEP.format(token=token))
    docker("exec", name, "rm", "-f", place)
    docker("exec", name, *_OUTPUTS)


def _put(name: str, body: bytes) -> None:
    content = base64.b64decode(json.loads(body)["data_base64"], validate=True)
    _running(name)
    docker("exec", name, "mkdir", "-p", "/workspace/uploads")
    docker("exec", name, "realpath", "-m", "/workspace/uploads/data.bin")
    docker("exec", "-i", name, "sh", "-c", "cat > /workspace/uploads/data.bin", given=content)


def _running(name: str) -> None:
    docker("inspect", "--format", "{{.State.Running}}", name)
