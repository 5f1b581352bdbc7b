"""Packages of the host: the list, what is missing, the command that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.rootfs import host

LIST = Path(host.__file__).resolve().parent.parent / "host-packages.txt"


def test_own_list_is_well_formed() -> None:
    packages = host.parse_host_packages(LIST.read_text())
    assert {"mmdebstrap", "bubblewrap", "uidmap", "libseccomp2"} <= {package.name for package in packages}


def test_line_without_purpose_is_refused() -> None:
    with pytest.raises(ValueError, match="purpose"):
        host.parse_host_packages("bubblewrap bwrap\n")


def test_missing_keeps_the_order_and_makes_one_command() -> None:
    packages = [host.HostPackage(name, "-", "x") for name in ("a", "b", "c")]
    lacking = host.missing_packages(packages, lambda package: package.name == "b")
    assert host.install_command(lacking) == "apt-get install --no-install-recommends -y a c"


def test_signs() -> None:
    assert host.is_installed(host.HostPackage("x", "module:json", "x"))
    assert not host.is_installed(host.HostPackage("x", "module:no_such_module", "x"))
    assert host.is_installed(host.HostPackage("x", "/", "x"))
    assert host.is_installed(host.HostPackage("x", "sh", "x"))
    assert not host.is_installed(host.HostPackage("x", "no-such-program", "x"))


def test_user_is_told_the_command_and_nothing_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    lacking = [host.HostPackage("no-such-package", "/no/such/file", "test")]
    assert host.ensure_host(lacking, user_id=1000) == 1
    out = capsys.readouterr().out
    assert "no-such-package" in out
    assert host.ensure_host([], user_id=1000) == 0
