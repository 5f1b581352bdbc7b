"""Packages of the host: which are missing, and how to get them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Either of the two can make the bare system, so mmdebstrap is not asked for where debootstrap will do.
ALTERNATIVES = {"mmdebstrap": ("debootstrap",)}


@dataclass(frozen=True)
class HostPackage:
    """One line of host-packages.txt."""

    name: str
    sign: str
    purpose: str


def parse_host_packages(text: str) -> list[HostPackage]:
    """Return the packages of the list; raise ValueError for a line with too few columns."""
    result = []
    for line in text.splitlines():
        bare = line.split("#", 1)[0].strip()
        if not bare:
            continue
        columns = bare.split(None, 2)
        if len(columns) != 3:
            raise ValueError(f"host-packages.txt: package, sign and purpose expected: {bare!r}")
        result.append(HostPackage(*columns))
    return result


def is_installed(package: HostPackage) -> bool:
    """Tell whether the package's sign is there."""
    if package.sign.startswith("module:"):
        return importlib.util.find_spec(package.sign.removeprefix("module:")) is not None
    if package.sign.startswith("/"):
        return Path(package.sign).exists()
    if package.sign != "-":
        # Tools for the administrator lie outside a user's PATH on Debian.
        search = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
        names = (package.sign, *ALTERNATIVES.get(package.name, ()))
        return any(shutil.which(name, path=search) for name in names)
    asked = ["dpkg-query", "-W", "-f", "${db:Status-Abbrev}", package.name]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return False
    return done.stdout.startswith("ii")


def missing_packages(
    packages: list[HostPackage], installed: Callable[[HostPackage], bool] = is_installed
) -> list[HostPackage]:
    """Return the packages that are not there, in the order of the list."""
    return [package for package in packages if not installed(package)]


def install_command(packages: list[HostPackage]) -> str:
    """Return the exact command that installs the packages, for a user to run as root."""
    return "apt-get install --no-install-recommends -y " + " ".join(package.name for package in packages)


def ensure_host(packages: list[HostPackage], user_id: int) -> int:
    """Install what is missing (root, announced) or name it (user). Return an exit code."""
    missing = missing_packages(packages)
    if not missing:
        print("host packages: all there")
        return 0
    print("host packages missing:")
    for package in missing:
        print(f"  {package.name:24} {package.purpose}")
    command = install_command(missing)
    if shutil.which("apt-get") is None:
        print("this host has no apt-get: install the like of these with its own package manager")
        return 1
    if user_id != 0:
        print(f"run this as root, then start again:\n  sudo {command}")
        return 1
    print(f"installing them: {command}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet = ["-q", "-o", "Dpkg::Use-Pty=0"]
    words = command.split()
    if subprocess.run([*words, *quiet], env=environment, check=False).returncode == 0:
        return 0
    print("trying again with fresh package lists", flush=True)
    subprocess.run(["apt-get", "update", *quiet], env=environment, check=False)
    return 0 if subprocess.run([*words, *quiet], env=environment, check=False).returncode == 0 else 1
