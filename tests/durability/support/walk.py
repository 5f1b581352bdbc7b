"""Does an operation with one of its steps harmed, and looks at what a reopened store serves then."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from runner.errors import StoreFailed
from tests.durability.support import reopen
from tests.durability.support.operations import Operation, base, perform, recorded
from tests.durability.support.stepper import Harm, Stepper, stepping
from tests.unit.workspace.workspace_lab import lab

# What is left behind is swept, and where a whole file system cannot be synced each file is.
_HARMLESS = frozenset(("unlink", "remove", "rmdir", "syncfs"))
State = dict[str, dict[str, str]]


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in memory where there is one: these walks are about the order of steps, not about a disk."""
    top = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=top, prefix="foliobox-steps-") as folder:
        yield Path(folder)


@dataclass
class Walk:
    """One operation from one base. ``before`` and ``after`` are the only states that may ever be found."""

    folder: Path
    operation: Operation
    base: Operation = base
    before: State = field(default_factory=dict)
    after: State = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    objects: set[str] = field(default_factory=set)  # that must be left, where their names do not depend on chance
    found_before: int = 0
    found_after: int = 0

    def prepare(self) -> None:
        """Make the base, and see which steps the operation takes when nothing happens."""
        if self.steps:
            return
        perform(self._base, self.base)
        self.before = _state(self._base)
        place = self._fresh()
        with stepping(Stepper(str(place))) as stepper:
            perform(place)
            self._opening = stepper.count
        place = self._fresh()
        with stepping(Stepper(str(place))) as stepper:
            perform(place, self.operation)
            self.steps = stepper.done[self._opening :]
        self.after = _state(place)

    @property
    def _base(self) -> Path:
        return self.folder / "base"

    def _fresh(self) -> Path:
        place = self.folder / "place"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self._base, place)
        return place

    def kill(self, step: int) -> list[str]:
        """SIGKILL before the step; gives what is wrong afterwards."""
        place = self._fresh()
        assert threading.active_count() == 1, "a fork would not have these threads"
        child = os.fork()
        if child == 0:
            try:
                with stepping(Stepper(str(place), self._opening + step)):
                    perform(place, self.operation)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        status = os.waitpid(child, 0)[1]
        if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
            return [f"step {step} did not come: {status}"]
        return self._look(place, step) + self._again(place, step)

    def fail(self, step: int, harm: Harm, number: int) -> list[str]:
        """The step fails; the same process goes on, does the operation again, and so does the next one."""
        place, copy = self._fresh(), self.folder / "copy"
        name = f"step {step} ({self.steps[step - 1]}) {harm} {errno.errorcode[number]}"

        async def both() -> list[str]:
            async with lab(place) as at:
                told = False
                with stepping(Stepper(str(place), step, harm, number)) as stepper:
                    try:
                        await self.operation(at)
                    except StoreFailed:
                        told = True
                    except Exception as error:
                        return [f"{name}: {error!r} instead of an error of the store"]
                shutil.copytree(place, copy)
                await self.operation(at)
                silent = not told and not _HARMLESS.issuperset(stepper.harmed)
                return [f"{name}: nothing was told of {stepper.harmed}"] if silent else []

        try:
            wrong = asyncio.run(asyncio.wait_for(both(), 60))
            wrong += [f"{name}, at once: {problem}" for problem in self._look(copy, step)]
            return wrong + [f"{name}, done again: {problem}" for problem in self._look(place, step, only_after=True)]
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def _look(self, place: Path, step: int, *, only_after: bool = False) -> list[str]:
        where = f"step {step} ({self.steps[step - 1]})"
        try:
            found = _state(place)
        except Exception as error:
            return [f"{where}: cannot be opened: {error!r} {getattr(error, 'cause', '')}"]
        if found == self.after:
            self.found_after += 1
            return []
        if found == self.before and not only_after:
            self.found_before += 1
            return []
        return [f"{where}: neither the old nor the new state: {found}"]

    def _again(self, place: Path, step: int) -> list[str]:
        try:
            perform(place, self.operation)
        except Exception as error:
            if _state(place) == self.after:
                return []
            return [f"step {step}: the operation cannot be done again: {error!r}"]
        wrong = [] if _state(place) == self.after else [f"step {step}: done again, and another state"]
        if self.objects and objects(place) != self.objects:
            wrong.append(f"step {step}: done again, and other objects: {objects(place) ^ self.objects}")
        return wrong


def objects(place: Path) -> set[str]:
    """Everything that a store holds."""
    top = place / "store" / "objects"
    return {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}


def _state(place: Path) -> State:
    return {**reopen.served(place), "(records)": recorded(place)}
