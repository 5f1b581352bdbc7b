"""Runs a command so that a signal to us ends it in order: an interrupt first, which lets pytest clean up."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType

PATIENCE_S = 60.0


class Ended(BaseException):
    """A signal asked us to end; ``status`` is the exit status that says so."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def signals_end_us() -> None:
    """Make SIGTERM, SIGHUP and SIGINT raise Ended; a second one while things are put away changes nothing."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

    def end(number: int, _: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Ended(number)

    for number in numbers:
        signal.signal(number, end)


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The command's exit status. It is interrupted, and later killed, when anything is raised here meanwhile."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)
    try:
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # what the command started belongs to its session
            process.wait()
        raise
