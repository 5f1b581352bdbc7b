"""An engine's packages are installed only when they are missing, and said before; a failure has a way on."""

from __future__ import annotations

import os
import shutil

import pytest

from images.rootfs import host
from tests.support.engines import packages


class Debian:
    """A host with some of the packages, where installing works or does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *there: str, works: bool = True) -> None:
        self.there, self.works, self.asked = set(there), works, list[str]()
        monkeypatch.setattr(host, "is_installed", lambda package: package.name in self.there)
        monkeypatch.setattr(
            host, "missing_packages", lambda wanted: [package for package in wanted if package.name not in self.there]
        )
        monkeypatch.setattr(host, "ensure_host", self.install)

    def install(self, wanted: list[host.HostPackage], user_id: int) -> int:
        self.asked += [package.name for package in wanted]
        self.there |= {package.name for package in wanted} if self.works else set()
        return 0 if self.works else 1


def test_nothing_is_installed_where_all_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    debian = Debian(monkeypatch, "docker.io", "docker-cli", "runsc")
    packages.ensure()
    assert debian.asked == []
    assert capsys.readouterr().out == ""


def test_what_is_missing_is_named_before_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    debian = Debian(monkeypatch)
    packages.ensure()
    assert debian.asked == ["docker.io", "runsc", "docker-cli"]
    assert "docker.io, runsc will be installed" in capsys.readouterr().out


def test_a_package_that_cannot_be_installed_leaves_the_columns_out(monkeypatch: pytest.MonkeyPatch) -> None:
    Debian(monkeypatch, "docker.io", works=False)
    with pytest.raises(packages.Unavailable, match="runsc could not be installed"):
        packages.ensure()


def test_without_apt_the_way_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    Debian(monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert "no apt-get" in packages.lacking() and "DOCKER_HOST" in packages.lacking()
