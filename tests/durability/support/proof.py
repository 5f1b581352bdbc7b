"""No answer before its objects: walks a trace, notes what was not durable when a response began to leave. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.durability.support.model import Model, threads
from tests.durability.support.nodes import Image, pending
from tests.durability.support.trace import Step

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_ID = re.compile(rb"x-request-id: *([A-Za-z0-9._-]+)", re.IGNORECASE)
_EVENT = re.compile(rb"event: *(started|done)")
_EXECUTION = re.compile(rb'"execution_id": ?"([0-9a-f]+)"')


@dataclass(frozen=True, slots=True)
class Answer:
    """The first byte of a response, or an event of a run: ``name`` is the request's or ``<execution>:<event>``."""

    name: str
    status: int
    line: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that a power cut at the moment of an answer would take away, or a name before its bytes."""

    answer: str
    what: str
    path: str

    def __str__(self) -> str:
        return f"{self.answer}: {self.what}: {self.path}"


@dataclass
class Verdict:
    """What a walk found. ``changes`` are steps that may have changed the folder or what of it is durable."""

    answers: list[Answer] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    changes: int = 0
    syncs: int = 0


Observer = Callable[[Model, Answer | None], None]


def prove(
    trace: Iterable[Step],
    root: str,
    *,
    ignore: Callable[[str], bool] = lambda _: False,
    observe: Observer | None = None,
    cwd: str = "/",
) -> Verdict:
    """Follow a trace. ``ignore`` says which paths below ``root`` hold nothing that is ever acknowledged.

    ``observe`` is called with every answer before it leaves, and with None after each change of the folder.
    """
    steps = list(trace)
    model = Model(root, threads(steps), cwd)
    verdict = Verdict()
    early = 0
    for step in steps:
        for answer in _answers(model.sent(step), step.line):
            verdict.answers.append(answer)
            if 200 <= answer.status < 300:
                verdict.faults += [
                    Fault(answer.name, what, path) for what, path in pending(model.root) if not ignore(path)
                ]
            if observe:
                observe(model, answer)
        model.feed(step)
        if model.changes > verdict.changes and observe:
            observe(model, None)
        verdict.changes = model.changes
        verdict.syncs += step.phase == "end" and "sync" in step.call.name and step.call.ok
        for line, path in model.named_early[early:]:
            if not ignore(path):
                verdict.faults.append(Fault(f"line {line}", "a name before its bytes were durable", path))
        early = len(model.named_early)
    return verdict


def _answers(sent: bytes, line: int) -> list[Answer]:
    status, name = _STATUS.match(sent), _ID.search(sent)
    found = []
    if status:
        found.append(Answer(name[1].decode() if name else "", int(status[1]), line))
    execution = _EXECUTION.search(sent)
    for event in _EVENT.finditer(sent) if execution else ():
        assert execution
        found.append(Answer(f"{execution[1].decode()}:{event[1].decode()}", 200, line))
    return found


def after_cut(model: Model) -> dict[str, Image]:
    """The folder after a power cut now, by what of the unsynced happens to survive."""
    return {
        "nothing unsynced": Image.of(model.root, names=False, data=False),
        "unsynced data only": Image.of(model.root, names=False, data=True),
        "unsynced names only": Image.of(model.root, names=True, data=False),
    }
