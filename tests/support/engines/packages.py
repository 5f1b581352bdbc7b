"""What an engine needs of the host, and how it gets there: Debian's packages, as root, announced first."""

from __future__ import annotations

import os
import shutil

from images.rootfs import host

ENGINE = host.HostPackage("docker.io", "dockerd", "Docker's engine, for the tests on containers")
CLIENT = host.HostPackage("docker-cli", "docker", "Docker's command line, where the engine comes without it")
GVISOR = host.HostPackage("runsc", "runsc", "gVisor, for the tests on a kernel of their own")
SERVICE = "(where systemd runs, Debian also starts an engine of the system with it; these tests do not use that one)"


class Unavailable(Exception):
    """There is no engine here; the text says why and how to get one."""


def on_path(name: str) -> str | None:
    """Where a program is; tools for the administrator lie outside a user's PATH on Debian."""
    return shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")


def ensure() -> None:
    """Install what is missing. Raises Unavailable."""
    missing = host.missing_packages([ENGINE, GVISOR])
    if missing:
        print(f"engines for tests: {', '.join(p.name for p in missing)} will be installed {SERVICE}", flush=True)
    for package in (*missing, CLIENT):  # the second part of the engine is a package of its own from Debian 13 on
        if not host.is_installed(package) and host.ensure_host([package], os.geteuid()):
            raise Unavailable(f"{package.name} could not be installed; see above")


def lacking() -> str:
    """Why an engine cannot be started here, with the way to get it; empty where it can be tried."""
    command = host.install_command([ENGINE, GVISOR])
    if os.geteuid() != 0:
        return f"only root can start one; run the tests as root, or name one by DOCKER_HOST (sudo {command})"
    if host.missing_packages([ENGINE, GVISOR]) and shutil.which("apt-get") is None:
        return "this host has no apt-get: install Docker's engine and runsc, or name an engine by DOCKER_HOST"
    return ""
