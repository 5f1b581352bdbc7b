"""Which backend is chosen: ``auto`` never gives up isolation without the operator's word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runner.backends import registry
from runner.backends.base import BackendReport, Permission, Sandbox, Wall, as_it_is
from runner.backends.bubblewrap.backend import BubblewrapBackend
from runner.backends.bubblewrap.config import BubblewrapConfig
from runner.backends.docker.backend import DockerBackend
from runner.backends.docker.config import DockerConfig
from runner.backends.unisolated.backend import UnisolatedBackend
from runner.errors import ConfigurationError
from runner.model import SandboxSpec
from runner.settings import BACKENDS


class Fake:
    """A backend that reports what it is told to."""

    def __init__(self, report: BackendReport) -> None:
        self.name, self.report, self.probed = report.name, report, False

    async def probe(self, allowed: Permission = as_it_is) -> BackendReport:
        self.probed = True
        return allowed(self.report)

    async def create(self, spec: SandboxSpec) -> Sandbox:
        raise NotImplementedError(self.name)

    async def trouble(self) -> str:
        return f"{self.name} is tired"

    async def renewed(self, allowed: Permission = as_it_is) -> BackendReport | None:
        return allowed(self.report)

    async def survivors(self) -> list[str]:
        return [self.name]

    async def attach(self, sandbox_id: str) -> Sandbox:
        raise NotImplementedError(self.name)

    async def sweep(self) -> int:
        return 1


def automatic(jails: bool, bare: bool, allowed: bool, docker: bool = False) -> tuple[registry.Automatic, Fake]:
    engine = Fake(BackendReport("docker", docker, "separate-kernel", detail="" if docker else "no daemon"))
    isolated = Fake(BackendReport("bubblewrap", jails, "shared-kernel", detail="" if jails else "no namespaces"))
    naked = Fake(BackendReport("unisolated", bare, "none", walls=(Wall("namespaces", False),), detail="bare"))
    return registry.Automatic(engine, isolated, naked, allow_unisolated=allowed), naked


async def test_docker_comes_first() -> None:
    chosen, naked = automatic(True, True, True, docker=True)
    assert (await chosen.probe()).name == chosen.name == "docker"
    assert not naked.probed
    assert await chosen.survivors() == ["docker"]
    assert await chosen.trouble() == "docker is tired"
    renewed = await chosen.renewed()
    assert renewed is not None
    assert renewed.name == "docker"
    assert await chosen.sweep() == 3


@pytest.mark.parametrize("allowed", [False, True])
async def test_with_namespaces_the_switch_changes_nothing(allowed: bool) -> None:
    chosen, naked = automatic(True, True, allowed)
    assert (await chosen.probe()).name == chosen.name == "bubblewrap"
    assert not naked.probed


async def test_without_namespaces_and_switch_there_is_no_backend() -> None:
    chosen, naked = automatic(False, True, False)
    report = await chosen.probe()
    assert (report.name, report.available, naked.probed) == ("bubblewrap", False, False)
    assert "SANDBOX_ALLOW_UNISOLATED=1" in report.detail
    with pytest.raises(NotImplementedError, match="bubblewrap"):
        await chosen.create(SandboxSpec("x", limits=None))  # type: ignore[arg-type]


async def test_without_namespaces_the_switch_decides_and_is_told() -> None:
    chosen, _ = automatic(False, True, True)
    report = await chosen.probe()
    assert (report.name, chosen.name, report.isolation, report.loopback_only) == (
        "unisolated", "unisolated", "none", True,
    )  # fmt: skip
    assert "no namespaces" in report.detail
    with pytest.raises(NotImplementedError, match="unisolated"):
        await chosen.create(SandboxSpec("x", limits=None))  # type: ignore[arg-type]
    assert await chosen.sweep() == 2


async def test_when_both_fail_both_reasons_are_told() -> None:
    chosen, _ = automatic(False, False, True)
    report = await chosen.probe()
    assert not report.available
    assert report.detail == "docker: no daemon; bubblewrap: no namespaces; and without isolation: bare"


def test_names(tmp_path: Path) -> None:
    jails, docker = BubblewrapConfig(tmp_path, tmp_path / "run", None), DockerConfig(tmp_path)
    assert isinstance(registry.create("docker", docker, jails, False), DockerBackend)
    assert isinstance(registry.create("bubblewrap", docker, jails, True), BubblewrapBackend)
    assert isinstance(registry.create("unisolated", docker, jails, True), UnisolatedBackend)
    assert isinstance(registry.create("auto", docker, jails, False), registry.Automatic)
    with pytest.raises(ConfigurationError, match="SANDBOX_ALLOW_UNISOLATED=1"):
        registry.create("unisolated", docker, jails, False)
    with pytest.raises(ConfigurationError, match="choose one of"):
        registry.create("podman", docker, jails, True)
    assert BACKENDS == registry.NAMES


async def test_what_has_served_is_not_changed_while_the_service_runs() -> None:
    """An engine that answers, and cannot start a container just now, is waited for; jails would be for ever."""
    engine = Fake(BackendReport("docker", True, "separate-kernel"))
    jails = Fake(BackendReport("bubblewrap", True, "shared-kernel"))
    chosen = registry.Automatic(engine, jails, Fake(BackendReport("unisolated", True)), allow_unisolated=False)
    assert (await chosen.probe()).name == "docker"
    engine.report = replace(engine.report, available=False, detail="the disk is full")
    report = await chosen.probe()
    assert (report.available, report.detail, chosen.name, jails.probed) == (False, "the disk is full", "docker", False)
    engine.report = replace(engine.report, available=True)
    assert (await chosen.probe()).available
    assert chosen.name == "docker"


async def test_until_one_has_served_the_first_that_can_and_may_is_taken() -> None:
    engine = Fake(BackendReport("docker", True, "separate-kernel"))
    jails = Fake(BackendReport("bubblewrap", True, "shared-kernel"))
    chosen = registry.Automatic(engine, jails, Fake(BackendReport("unisolated", True)), allow_unisolated=False)
    report = await chosen.probe(lambda found: replace(found, available=False, detail="weaker than before"))
    assert (report.available, "weaker than before" in report.detail) == (False, True)
    engine.report = replace(engine.report, available=False, detail="no daemon")
    assert (await chosen.probe()).name == chosen.name == "bubblewrap"
    assert chosen.passed_over == "docker: no daemon"
    engine.report = replace(engine.report, available=True)
    assert (await chosen.probe()).name == "bubblewrap"


async def test_what_is_not_allowed_is_passed_over_for_what_is() -> None:
    chosen, _ = automatic(True, True, False, docker=True)
    report = await chosen.probe(
        lambda found: replace(found, available=False, detail="refused") if found.name == "docker" else found
    )
    assert (report.name, report.available, chosen.passed_over) == ("bubblewrap", True, "docker: refused")
