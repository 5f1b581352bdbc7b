"""Rows of the Docker backend, on runc and on gVisor, against what a process of its own in a container costs.

They need a Docker daemon with the sandbox image; where none answers they are left out, and the table says so.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator

from bench.fresh import first_prints, idle_mib
from bench.lab import Lab
from bench.stats import Sample, repeat
from bench.warm import prints
from runner import __version__

_LIMIT_S = 60.0
_CELL = ("python", "-c", "print(1)")
_LEAST = ("--rm", "--network", "none", "--log-driver", "none")


def missing() -> str:
    """Why these rows cannot be measured here; empty when they can."""
    if shutil.which("docker") is None:
        return "the command docker is not installed"
    done = subprocess.run(["docker", "image", "inspect", _image()], capture_output=True, timeout=_LIMIT_S, check=False)
    return "" if done.returncode == 0 else f"no Docker daemon answers that has the image {_image()}"


def docker_run(lab: Lab) -> Sample:
    """A container for one cell, as those who keep nothing do it."""
    return repeat(lambda: docker("run", *_LEAST, _image(), *_CELL), lab.count(10, 3), 1)


def docker_exec(lab: Lab) -> Sample:
    """A process for one cell in a container that is kept."""
    with container() as name:
        return repeat(lambda: docker("exec", name, *_CELL), lab.count(20, 5), 1)


def runc_warm(lab: Lab) -> Sample:
    """A cell in a conversation that has run some."""
    return prints(lab.service(runtime="runc"), lab.count(300, 60))


def runc_new(lab: Lab) -> Sample:
    """A conversation that did not exist, its sandbox out of the pool."""
    return first_prints(lab.service(runtime="runc"), lab.count(8, 3))


def runc_memory(lab: Lab) -> Sample:
    """What the machine has less for each idle conversation."""
    return Sample((idle_mib(lab.service(runtime="runc")),))


def runsc_warm(lab: Lab) -> Sample:
    """The same as ``runc_warm`` on gVisor."""
    return prints(lab.service(runtime="runsc"), lab.count(300, 60))


def runsc_new(lab: Lab) -> Sample:
    """The same as ``runc_new`` on gVisor."""
    return first_prints(lab.service(runtime="runsc"), lab.count(8, 3))


def runsc_memory(lab: Lab) -> Sample:
    """The same as ``runc_memory`` on gVisor."""
    return Sample((idle_mib(lab.service(runtime="runsc")),))


def _image() -> str:
    return os.environ.get("SANDBOX_IMAGE") or f"foliobox-sandbox:{__version__}"


@contextlib.contextmanager
def container(*more: str) -> Iterator[str]:
    """The name of a container of the sandbox image that does nothing, with ``more`` options."""
    name = f"foliobox-bench-{secrets.token_hex(4)}"
    docker("run", "--detach", "--name", name, *_LEAST, *more, _image(), "sleep", "600")
    try:
        yield name
    finally:
        docker("rm", "--force", name)


def docker(*arguments: str, given: bytes = b"") -> None:
    """A command of Docker with standard input; it must succeed."""
    subprocess.run(["docker", *arguments], input=given, check=True, stdout=subprocess.DEVNULL, timeout=_LIMIT_S)
