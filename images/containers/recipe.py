"""Run one Dockerfile with the mirrors, proxies and certificates of this host, none of which stay in its image."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from images.containers import docker
from images.rootfs import builder, commands, progress

# Below certs/, so that Git ignores it and contexts without it are still copied; only *.crt beside it are for good.
BUILD_CA = "certs/build"


def downloads(environment: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Build arguments for downloads. The stages that know them are not part of the image."""
    values = {name: environment[name] for name in commands.PROXIES if environment.get(name)}
    return values | commands.pip_environment(environment, configured)


@contextlib.contextmanager
def build_ca(images: Path) -> Iterator[None]:
    """Put the host's bundle of authorities into the context while an image is built, unless there is one already."""
    bundle = commands.ca_bundle(os.environ, builder.pip_config())
    folder = images / BUILD_CA
    if bundle is None or folder.is_dir():
        yield
        return
    folder.mkdir()
    try:
        shutil.copyfile(bundle, folder / "ca.pem")
        yield
    finally:
        shutil.rmtree(folder)


def build(plan: builder.Plan, dockerfile: str, base: str, tags: Sequence[str], arguments: Sequence[str]) -> None:
    """Build one Dockerfile of this repository with the classic builder or the newer one. Raises StepError."""
    root = plan.images.parent
    command = [docker.command(), "build", "--file", str(root / dockerfile), "--build-arg", f"BASE={base}"]
    command += [word for tag in tags for word in ("--tag", tag)]
    network = docker.build_network()
    if network != "default":
        print(f"        the engine has no bridge: steps use the network `{network}`", flush=True)
    values = downloads(os.environ, builder.pip_config())
    # By name alone, so that a password in an address is in no list of processes.
    command += [word for name in values for word in ("--build-arg", name)]
    command += ["--network", network, *arguments, str(root)]
    plan.cache.prepare()
    log = plan.cache.logs / f"{dockerfile.lower()}.log"
    with build_ca(plan.images):
        progress.run(progress.Step(f"build {dockerfile}", command, log, builder.tool_environment() | values))
