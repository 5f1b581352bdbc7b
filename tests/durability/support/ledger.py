"""What a client was promised: what it asked for, what was acknowledged, and hence what must be there. Pure.

An effect that was begun and not acknowledged may have happened or not; one that was acknowledged has happened.
Clients change paths of their own, so that the effects on a path are in the order in which they were begun.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

Files = Mapping[str, str]  # path to SHA-256 of the bytes that were served


@dataclass(slots=True)
class Effect:
    """A request: paths and their SHA-256 afterwards (None: gone). ``purges``: the conversation and all its files."""

    conversation: str
    changes: dict[str, str | None]
    purges: bool = False
    name: str | None = None  # of the answer that acknowledged it, as ``proof`` names answers


@dataclass
class Allowed:
    """What may be found in a conversation."""

    settled: dict[str, str | None] = field(default_factory=dict)
    loose: dict[str, set[str | None]] = field(default_factory=dict)
    exists: bool = False  # an acknowledged answer said so
    may_be_gone: bool = True

    def take(self, effect: Effect, acknowledged: bool) -> None:
        """One more effect, in order."""
        if acknowledged:
            if effect.purges:
                self.settled = dict.fromkeys(self.settled | dict.fromkeys(self.loose))
                self.loose = {}
            for path, digest in effect.changes.items():
                self.settled[path] = digest
                self.loose.pop(path, None)
            self.exists, self.may_be_gone = not effect.purges, effect.purges
            return
        if effect.purges:
            self.may_be_gone = True
            effect = Effect(effect.conversation, dict.fromkeys(self.settled))
        for path, digest in effect.changes.items():
            self.loose.setdefault(path, set()).add(digest)

    def problems(self, found: Files | None) -> list[str]:
        """What of ``found`` (None: there is no such conversation) was not promised, or was and is not so."""
        if found is None:
            return [] if self.may_be_gone else ["the conversation is gone"]
        wrong = [f"{path} came from nowhere" for path in found if path not in self.settled and path not in self.loose]
        for path in self.settled.keys() | self.loose.keys():
            options = {self.settled.get(path)} | self.loose.get(path, set())
            if found.get(path) not in options:
                wrong.append(f"{path} is {_short(found.get(path))}, not {' or '.join(map(_short, options))}")
        return wrong


class Ledger:
    """All effects of all clients, in the order in which they were begun. Threads may share it."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._lock = threading.Lock()

    def begin(self, conversation: str, changes: Mapping[str, bytes | str | None], *, purges: bool = False) -> Effect:
        """A request is about to be sent; a path's content is given as bytes, as their SHA-256, or as None."""
        digests = {path: sha(data) if isinstance(data, bytes) else data for path, data in changes.items()}
        effect = Effect(conversation, digests, purges)
        with self._lock:
            self._effects.append(effect)
        return effect

    def refuse(self, effect: Effect) -> None:
        """The service said that nothing of it was done."""
        with self._lock:
            self._effects.remove(effect)

    @property
    def names(self) -> set[str]:
        """Answers that acknowledged something."""
        return {effect.name for effect in self._effects if effect.name is not None}

    def allowed(self, names: Collection[str] | None = None) -> dict[str, Allowed]:
        """By conversation, what may be found when the answers ``names`` (default: all) have been sent."""
        found: dict[str, Allowed] = {}
        with self._lock:
            effects = list(self._effects)
        for effect in effects:
            done = effect.name is not None and (names is None or effect.name in names)
            found.setdefault(effect.conversation, Allowed()).take(effect, done)
        return found

    def problems(self, found: Mapping[str, Files], names: Collection[str] | None = None) -> list[str]:
        """Broken promises, given the files of every conversation there is."""
        return [
            f"{conversation}: {problem}"
            for conversation, allowed in self.allowed(names).items()
            for problem in allowed.problems(found.get(conversation))
        ]

    def promised(self) -> int:
        """How many files must be there."""
        return sum(1 for allowed in self.allowed().values() for digest in allowed.settled.values() if digest)


def sha(data: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(data).hexdigest()


def _short(digest: str | None) -> str:
    return "gone" if digest is None else digest[:8]


def summary(problems: Iterable[str], limit: int = 10) -> str:
    """The first few problems."""
    listed = list(problems)
    return "\n".join(listed[:limit] + ([f"and {len(listed) - limit} more"] if len(listed) > limit else []))
