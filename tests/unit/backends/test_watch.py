"""An engine that stops, comes back or comes late is seen, and so is another image, and only then."""

from __future__ import annotations

from dataclasses import replace

from runner.backends.base import BackendReport, Sandbox
from runner.backends.watch import RENEWAL_EVERY, Watch
from runner.model import SandboxSpec

GOOD = BackendReport("docker", True, "shared-kernel", runtime="runc")
BAD = replace(GOOD, available=False, detail="no daemon")


class Engine:
    """A backend whose engine is as the test says."""

    name = "docker"

    def __init__(self) -> None:
        self.trouble_now, self.report, self.probes = "", GOOD, 0
        self.news: BackendReport | None = None
        self.asked = 0

    async def trouble(self) -> str:
        return self.trouble_now

    async def probe(self) -> BackendReport:
        self.probes += 1
        return self.report

    async def renewed(self) -> BackendReport | None:
        self.asked += 1
        news, self.news = self.news, None
        return news

    async def create(self, spec: SandboxSpec) -> Sandbox:
        raise NotImplementedError

    async def survivors(self) -> list[str]:
        return []

    async def attach(self, sandbox_id: str) -> Sandbox:
        raise NotImplementedError

    async def sweep(self) -> int:
        return 0


def watched(report: BackendReport) -> tuple[Watch, Engine, list[BackendReport]]:
    engine, told = Engine(), list[BackendReport]()

    async def changed(now: BackendReport) -> None:
        told.append(now)

    return Watch(engine, report, changed), engine, told


async def test_while_all_is_well_nothing_is_told_or_probed() -> None:
    watch, engine, told = watched(GOOD)
    for _ in range(5):
        await watch.look()
    assert (told, engine.probes) == ([], 0)


async def test_one_missed_answer_is_none_and_two_are() -> None:
    watch, engine, told = watched(GOOD)
    for trouble in ("silent", "", "silent"):
        engine.trouble_now = trouble
        await watch.look()
    assert told == []
    await watch.look()
    assert told == [replace(GOOD, available=False, detail="silent")]
    assert engine.probes == 0


async def test_what_comes_back_is_probed_before_it_counts() -> None:
    watch, engine, told = watched(BAD)
    engine.trouble_now = "silent"
    await watch.look()
    assert (told, engine.probes) == ([], 0)
    engine.trouble_now, engine.report = "", BAD
    await watch.look()
    assert (told, engine.probes) == ([], 1)
    engine.report = GOOD
    await watch.look()
    assert (told, engine.probes) == ([GOOD], 2)
    await watch.look()
    assert engine.probes == 2


async def test_another_image_is_told_once_and_asked_for_now_and_then() -> None:
    watch, engine, told = watched(GOOD)
    engine.news = newer = replace(GOOD, image="name@2")
    for _ in range(RENEWAL_EVERY - 1):
        await watch.look()
    assert (told, engine.asked) == ([], 0)
    for _ in range(RENEWAL_EVERY + 1):
        await watch.look()
    assert (told, engine.asked, engine.probes) == ([newer], 2, 0)
    engine.trouble_now = "silent"
    for _ in range(2):
        await watch.look()
    assert told == [newer, replace(newer, available=False, detail="silent")]


async def test_an_engine_in_trouble_is_not_asked_for_its_image() -> None:
    watch, engine, _ = watched(BAD)
    engine.trouble_now = "silent"
    for _ in range(2 * RENEWAL_EVERY):
        await watch.look()
    assert engine.asked == 0
