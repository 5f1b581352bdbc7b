"""Which columns this host has: an engine that the environment names, a private one, or none, each said in a line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from images.rootfs.cache import cache_root
from runner import __version__
from tests.support.columns import BUBBLEWRAP, COLUMNS, OFFERED, Column, named
from tests.support.engines import daemon, docker, packages
from tests.support.engines.packages import Unavailable

REPOSITORY = Path(__file__).resolve().parents[3]
SANDBOX = "foliobox-sandbox"
IMAGES = (sys.executable, str(REPOSITORY / "images/build.py"))


@dataclass
class Offer:
    """Columns to run, what tests need in their environment, and why a column is not there."""

    columns: list[Column] = field(default_factory=lambda: [BUBBLEWRAP])
    environment: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, columns: list[Column], address: str) -> None:
        """Take columns of an engine that answers, as far as it has their runtimes."""
        there = docker.runtimes(address)
        self.environment["DOCKER_HOST"] = address
        for column in columns:
            if column.runtime in there:
                self.columns.append(column)
            else:
                self.left_out[column.name] = (
                    f"the engine at {address} has no runtime {column.runtime} (docs/backends.md)"
                )

    def finish(self) -> None:
        """Note the columns for the tests, and say what runs and what does not."""
        self.environment[OFFERED] = ",".join(column.name for column in self.columns)
        print(f"columns: {', '.join(column.name for column in self.columns)}")
        for name, why in self.left_out.items():
            print(f"  without {name}: {why}")
        sys.stdout.flush()


def wanted(environment: Mapping[str, str]) -> list[Column]:
    """The columns that ``ENGINES`` asks for; all without it. Raises ValueError."""
    return named(environment.get("ENGINES", "")) or list(COLUMNS.values())


@contextlib.contextmanager
def offer(environment: Mapping[str, str]) -> Iterator[Offer]:
    """What can run here, for the length of a block; an engine that was started ends with it."""
    made = Offer()
    engines = [column for column in wanted(environment) if column.needs_engine]
    with contextlib.ExitStack() as stack:
        if engines:
            try:
                address = environment.get("DOCKER_HOST") or stack.enter_context(_started(environment)).address
                ensure_image(address)
                made.add(engines, address)
            except (Unavailable, docker.DockerFailed, subprocess.TimeoutExpired) as error:
                made.left_out = {column.name: str(error) for column in engines}
        made.finish()
        yield made


@contextlib.contextmanager
def _started(environment: Mapping[str, str]) -> Iterator[daemon.Daemon]:
    """A private engine, installed when absent. What containers it has are removed at the end."""
    if why := packages.lacking():
        raise Unavailable(why)
    packages.ensure()
    home = cache_root(environment, os.geteuid(), Path.home()) / "docker-tests"
    with daemon.private(home) as made:
        print(f"engines for tests: a private one runs at {made.address}, its data in {home}", flush=True)
        yield made
        with contextlib.suppress(docker.DockerFailed):
            forget_old_images(made.address)


def ensure_image(address: str) -> None:
    """Have the sandbox image of this checkout in an engine. Raises Unavailable."""
    environment = {**os.environ, "DOCKER_HOST": address}
    if subprocess.run([*IMAGES, "sandbox"], check=False, env=environment).returncode != 0:
        raise Unavailable("the sandbox image could not be built; see above")


def forget_old_images(address: str) -> None:
    """Remove sandbox images of earlier contents from a private engine: each takes three gigabytes."""
    rows = docker.lines("images", "--no-trunc", "--format", "{{.ID}} {{.Tag}}", SANDBOX, address=address)
    tags = dict(row.split()[::-1] for row in rows)
    for tag, image in tags.items():
        if image != tags.get(__version__):
            docker.docker("rmi", f"{SANDBOX}:{tag}", address=address)
