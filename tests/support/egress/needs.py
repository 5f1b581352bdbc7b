"""What the tests of egress need of the host: root, iproute2 and squid, which is installed where it is missing."""

from __future__ import annotations

import os

import pytest

from images.rootfs import host

SQUID = host.HostPackage("squid", "squid", "the proxy that the image for egress has, for the tests of its rules")
IPROUTE = host.HostPackage("iproute2", "ip", "network namespaces of the tests of egress")
ROOT = "needs root: only root can make network namespaces"


def ensure() -> None:
    """Install what is missing; a user's tests are left out. AssertionError where it cannot be installed."""
    if os.geteuid() != 0:
        pytest.skip(ROOT)
    missing = host.missing_packages([SQUID, IPROUTE])
    # Where systemd runs, Debian also starts squid as a service of the system; these tests do not use that one.
    assert not missing or host.ensure_host(missing, os.geteuid()) == 0, f"install {[one.name for one in missing]}"
