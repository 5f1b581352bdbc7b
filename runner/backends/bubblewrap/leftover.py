"""Knows a launched process again after the runner that started it has died, and ends it.

That is the only way where a sandbox has no control group: its PID 1 takes the whole PID namespace along.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Mapping

from runner.backends import records

_END_S = 5.0


def facts(pid: int) -> records.Json:
    """What a record says of a process: its number, and which of all that ever have that number. Raises OSError."""
    return {"pid": pid, "born": records.born(pid)}


def end(record: Mapping[str, object]) -> bool:
    """SIGKILL for the process a record names and for its children; whether it is gone. Others are left alone."""
    pid, born = record.get("pid"), record.get("born")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 1 or not isinstance(born, str):
        return True
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        if not _is(pid, born):
            return True
        kill_children(pid)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        return bool(select.select([handle], [], [], _END_S)[0])
    except OSError:
        return False
    finally:
        os.close(handle)


def kill_children(pid: int) -> bool:
    """SIGKILL for the direct children of a process; whether there were any."""
    killed = False
    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as file:
        for child in file.read().split():
            os.kill(int(child), signal.SIGKILL)
            killed = True
    return killed


def _is(pid: int, born: str) -> bool:
    with contextlib.suppress(OSError):
        return records.born(pid) == born
    return False
