"""The image's name stands for another image while the service runs: that one is used once it has been tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.backends.base import BackendReport
from runner.backends.docker import backend as backend_module
from runner.backends.docker.args import Engine
from runner.backends.docker.attachment import Attachment
from runner.backends.docker.backend import DockerBackend
from runner.backends.docker.config import DockerConfig
from runner.backends.docker.door import Door, ImageMissing
from runner.backends.docker.probe import Found, Probe, shown
from runner.backends.egress import Egress, EgressConfig
from runner.errors import BackendUnavailable
from runner.model import SandboxLimits, SandboxSpec

OLD, NEW = "sha256:" + "1" * 64, "sha256:" + "2" * 64


class Daemon:
    """Answers what a probe asks; ``tagged`` is what the name stands for, or what is raised when it is asked."""

    def __init__(self) -> None:
        self.tagged: str | Exception = OLD
        self.broken: set[str] = set()
        self.tried: list[tuple[str, str]] = []
        self.told: list[str] = []

    async def call(self, _: Door, method: str, *__: object, **___: object) -> Any:
        if method == "info":
            return {"Runtimes": {"runc": {}, "runsc": {}}}
        assert method == "inspect_image"
        if isinstance(self.tagged, Exception):
            raise self.tagged
        return {"Id": self.tagged}

    async def try_(self, probe: Probe, _: object, image: str, runtime: str) -> Found:
        self.tried.append((image, runtime))
        if image in self.broken or (runtime == "runsc" and image == OLD):
            return Found(BackendReport("docker", False, detail=f"{runtime} is broken"))
        report = BackendReport("docker", True, image=f"sandbox:1@{image[7:10]}", runtime=runtime)
        return Found(report, Engine(image, runtime, content=image[7:10]))


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon()
    monkeypatch.setattr(Door, "call", lambda *args, **options: made.call(*args, **options))
    monkeypatch.setattr(Probe, "_try", lambda *args: made.try_(*args))
    monkeypatch.setattr(backend_module.log, "warning", lambda _, **fields: made.told.append(str(fields["because"])))
    return made


@pytest.fixture
async def backend(daemon: Daemon, tmp_path: Path) -> DockerBackend:
    made = DockerBackend(DockerConfig(tmp_path))
    assert (await made.probe()).image == "sandbox:1@111"
    daemon.tried.clear()
    return made


def used(backend: DockerBackend) -> Engine:
    assert backend._engine is not None
    return backend._engine


async def test_the_same_image_is_no_news(daemon: Daemon, backend: DockerBackend) -> None:
    assert await backend.renewed() is None
    assert (daemon.tried, daemon.told) == ([], [])


async def test_another_image_is_tried_on_the_same_runtime_and_used(daemon: Daemon, backend: DockerBackend) -> None:
    daemon.tagged = NEW
    report = await backend.renewed()
    assert report is not None
    assert (report.available, report.image, report.runtime) == (True, "sandbox:1@222", "runc")
    assert report.detail == "runsc is not used: runsc is broken"  # as before: that was not tried anew
    assert daemon.tried == [(NEW, "runc")]
    assert used(backend) == Engine(NEW, "runc", content="222")
    assert await backend.renewed() is None


async def test_without_a_new_image_the_old_one_goes_on_and_that_is_told_once(
    daemon: Daemon, backend: DockerBackend
) -> None:
    for error in (ImageMissing("none"), BackendUnavailable("busy"), ImageMissing("none")):
        daemon.tagged = error
        assert await backend.renewed() is None
    assert used(backend).image == OLD
    assert daemon.told == ["there is none of that name any more"]
    daemon.tagged = OLD
    await backend.renewed()
    daemon.tagged = ImageMissing("again")
    await backend.renewed()
    assert len(daemon.told) == 2


async def test_an_image_that_does_not_work_is_not_used(daemon: Daemon, backend: DockerBackend) -> None:
    daemon.tagged, daemon.broken = NEW, {NEW}
    for _ in range(3):
        assert await backend.renewed() is None
    assert used(backend).image == OLD
    assert daemon.told == ["runc is broken"]
    daemon.broken.clear()
    assert await backend.renewed() is not None
    assert used(backend).image == NEW


async def test_one_that_a_start_has_changed_to_is_news_still(
    daemon: Daemon, backend: DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old image was removed, so that a start took what the name stands for: spares of the old one are there."""

    async def start(engine: Engine, *_: object, **__: object) -> None:
        raise ImageMissing("gone") if engine.image == OLD else BackendUnavailable("enough seen")

    monkeypatch.setattr(backend._starter, "start", start)
    monkeypatch.setattr(backend_module.log, "warning", lambda *_, **__: None)
    daemon.tagged = NEW
    with pytest.raises(BackendUnavailable, match="enough"):
        await backend.create(SandboxSpec("s", SandboxLimits()))
    assert used(backend).image == NEW
    report = await backend.renewed()
    assert report is not None
    assert report.image == "sandbox:1@222"


async def test_before_anything_works_there_is_no_news(daemon: Daemon, tmp_path: Path) -> None:
    daemon.tagged = ImageMissing("none")
    backend = DockerBackend(DockerConfig(tmp_path))
    assert await backend.renewed() is None
    await backend.probe()
    daemon.tagged = NEW
    assert await backend.renewed() is None


def test_an_image_is_shown_by_its_name_and_what_that_stands_for() -> None:
    assert shown("sandbox:1", OLD) == "sandbox:1@111111111111"
    assert shown(f"sandbox@{OLD}", NEW) == f"sandbox@{OLD}"  # a name for one content


def refused(report: BackendReport) -> BackendReport:
    """Nothing may be used any more."""
    return replace(report, available=False, detail="weaker than before")


async def test_an_image_that_is_not_allowed_is_not_used(daemon: Daemon, backend: DockerBackend) -> None:
    daemon.tagged = NEW
    assert await backend.renewed(refused) is None
    assert (used(backend).image, daemon.told) == (OLD, ["weaker than before"])


async def test_nothing_is_started_of_what_a_probe_found_and_may_not_use(daemon: Daemon, backend: DockerBackend) -> None:
    report = await backend.probe(refused)
    assert (report.available, report.detail) == (False, "weaker than before")
    with pytest.raises(BackendUnavailable) as caught:
        await backend.create(SandboxSpec("s", SandboxLimits()))
    assert caught.value.fields["retry_after_ms"]
    assert (await backend.probe()).available
    assert used(backend).runtime == "runc"


async def test_while_a_probe_goes_on_the_runtime_that_was_allowed_is_used(
    daemon: Daemon, backend: DockerBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.tagged = NEW
    before, seen = used(backend), list[Engine]()
    try_ = daemon.try_

    async def watched(*args: Any) -> Found:
        seen.append(used(backend))
        return await try_(*args)

    monkeypatch.setattr(daemon, "try_", watched)
    assert (await backend.probe()).runtime == "runsc"
    assert seen == [before]
    assert used(backend) == Engine(NEW, "runsc", content="222")


async def test_what_cannot_be_listed_is_not_taken_for_dead(daemon: Daemon, backend: DockerBackend) -> None:
    async def silent(*_: object, **__: object) -> Any:
        raise BackendUnavailable("the daemon does not answer")

    daemon.call = silent  # type: ignore[method-assign]
    with pytest.raises(BackendUnavailable):
        await backend.survivors()


# -- egress ---------------------------------------------------------------------------------------------------------


class Wire:
    """A network of the daemon, and what a container in it sees of the proxy."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {"Id": "n", "Internal": True, "Containers": {"proxy": {}}}
        self.proxy, self.looks = "", 0

    async def seen(self, *_: object) -> dict[str, Any]:
        self.looks += 1
        return {"interfaces": ["eth0"], "proxy": self.proxy}

    async def network(self, *_: object) -> dict[str, Any]:
        return dict(self.facts)


@pytest.fixture
async def wired(daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[DockerBackend, Wire]:
    wire = Wire()
    monkeypatch.setattr(Attachment, "_seen", wire.seen)
    monkeypatch.setattr(Attachment, "network", wire.network)
    made = DockerBackend(DockerConfig(tmp_path, egress=EgressConfig("inside", "http://egress:3128")))
    assert (await made.probe()).egress is True
    return made, wire


async def egress_after(backend: DockerBackend, looks: int) -> Egress:
    for _ in range(looks):
        await backend.renewed()
    assert backend._found is not None
    return backend._found.report.network


async def test_a_proxy_whose_container_ended_is_seen_at_the_second_look(wired: tuple[DockerBackend, Wire]) -> None:
    backend, wire = wired
    wire.facts["Containers"], wire.proxy = {}, "no route to host"
    assert (await egress_after(backend, 1)).on is True
    now = await egress_after(backend, 1)
    assert (now.on, now.lost) == (False, True)
    wire.facts["Containers"], wire.proxy = {"proxy2": {}}, ""
    assert (await egress_after(backend, 1)).on is True


async def test_a_proxy_that_no_container_shows_is_looked_at_every_few_times(wired: tuple[DockerBackend, Wire]) -> None:
    backend, wire = wired
    assert (await egress_after(backend, 8)).on is True
    assert wire.looks == 1 + 2  # cheap in between
    wire.proxy = "connection refused"
    assert (await egress_after(backend, 5)).on is False


async def test_sandboxes_that_come_and_go_cost_no_look(wired: tuple[DockerBackend, Wire]) -> None:
    backend, wire = wired
    for name in ("a", "b"):
        wire.facts["Containers"] = {"proxy": {}, name: {}}
        await egress_after(backend, 1)
    assert wire.looks == 1


@pytest.mark.parametrize("facts", [{"Internal": False}, {"Internal": False, "Id": "another"}])
async def test_a_network_that_leads_past_the_proxy_now_is_told_at_once(
    wired: tuple[DockerBackend, Wire], facts: dict[str, Any]
) -> None:
    backend, wire = wired
    wire.facts |= facts
    now = await egress_after(backend, 1)
    assert (now.on, now.open) == (True, True)
    assert "WARNING" in now.detail
