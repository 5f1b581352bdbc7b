"""An engine that stops, comes back or comes late is seen, and so is another image, and only then."""

from __future__ import annotations

from dataclasses import replace

from runner.backends.base import BackendReport, Permission, Sandbox, as_it_is
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

    async def probe(self, allowed: Permission = as_it_is) -> BackendReport:
        self.probes += 1
        return allowed(self.report)

    async def renewed(self, allowed: Permission = as_it_is) -> BackendReport | None:
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


def watched(
    report: BackendReport, allowed: Permission = as_it_is, answers: tuple[bool, ...] = ()
) -> tuple[Watch, Engine, list[BackendReport]]:
    """``answers``: whether what was told could be done, each time; after them always."""
    engine, told, left = Engine(), list[BackendReport](), iter(answers)

    async def changed(now: BackendReport) -> bool:
        told.append(now)
        return next(left, True)

    return Watch(engine, report, changed, allowed), engine, told


def no_less(report: BackendReport) -> BackendReport:
    """Only a kernel of its own will do."""
    weaker = report.available and report.isolation != "separate-kernel"
    return replace(report, available=False, detail="weaker than before") if weaker else report


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
    engine.trouble_now, engine.report = "", BAD  # as it is known already
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


async def test_what_is_not_allowed_is_told_as_unavailable_and_tried_on_until_it_is() -> None:
    watch, engine, told = watched(BAD, no_less)
    for _ in range(3):
        await watch.look()
    assert [(one.available, one.detail) for one in told] == [(False, "weaker than before")]  # told once
    assert engine.probes == 3
    engine.report = strong = replace(GOOD, isolation="separate-kernel", runtime="runsc")
    await watch.look()
    assert (told[1:], engine.probes) == ([strong], 4)


async def test_what_could_not_be_done_is_told_again_when_all_is_well() -> None:
    watch, engine, told = watched(BAD, answers=(False, False))
    await watch.look()
    assert told == [GOOD]
    engine.trouble_now = "busy"
    await watch.look()
    assert told == [GOOD]
    engine.trouble_now = ""
    for _ in range(3):
        await watch.look()
    assert (told, engine.probes) == ([GOOD] * 3, 1)
