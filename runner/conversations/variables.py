"""Whether a conversation's variables are there, and what a run is told when they are not."""

from __future__ import annotations

from runner.interpreter.client import RunEnd
from runner.model import InterpreterState, RunRequest


class Variables:
    """``there``: whether there are any; ``reason`` why they were lost, told with the next run that makes new ones."""

    def __init__(self, reason: str | None) -> None:
        self.there = False
        self.reason = reason

    @property
    def memorable(self) -> bool:
        """Whether the next run is to be told something that only this process knows."""
        return self.reason not in (None, "restored")

    def forget(self, reason: str | None) -> None:
        """They are gone; the next run is told why, if there were any."""
        if reason is not None and self.there:
            self.reason = reason
        self.there = False

    def after(self, request: RunRequest, end: RunEnd | None, started: str) -> tuple[InterpreterState, str | None]:
        """What a run is told of them, and if they were lost before it, why."""
        if end is None or end.interpreter == "lost":
            self.there = True  # the run itself may have set some
            self.forget("lost_in_previous_run")
            return InterpreterState.LOST, None
        had = self.there
        if request.fresh or request.language == "bash":
            return (InterpreterState.KEPT, None) if had else (InterpreterState.NEW, self.reason)  # and told again
        if had and started == "new":
            self.forget("interpreter_lost")
            had = False
        self.there = True
        reason, self.reason = self.reason, None
        return (InterpreterState.KEPT, None) if had else (InterpreterState.NEW, reason)
