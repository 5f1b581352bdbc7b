"""What one cell leaves to the next inside the interpreter: dead children, running timers, edited modules."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys

_waitid, _waitpid, _Popen = os.waitid, os.waitpid, subprocess.Popen
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


def stop_timers() -> None:
    """An alarm set by one cell must not end the interpreter at the start of another."""
    for timer in _TIMERS:
        signal.setitimer(timer, 0)


def reap_children() -> None:
    """Wait for children that were killed when the last run ended: until then each counts as a process.

    Objects that stand for them are told first, so that ``returncode`` and ``exitcode`` are right.
    """
    try:
        if _waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return
    except ChildProcessError:
        return
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None:
        with contextlib.suppress(Exception):
            multiprocessing.active_children()
    for item in gc.get_objects():
        if type(item) is _Popen:
            with contextlib.suppress(Exception):  # one that an interrupt left half made has no returncode to ask for
                item.poll()
    with contextlib.suppress(ChildProcessError):
        while _waitpid(-1, os.WNOHANG)[0]:
            pass


class ModuleWatch:
    """Forgets imported modules of the workspace whose file has changed, so that ``import`` reads them again."""

    def __init__(self, root: str) -> None:
        self._prefix = root + "/"
        self._count = len(sys.modules)
        self._seen: dict[str, tuple[str, object]] = {}

    def note_new(self) -> None:
        """Call after a cell: remember the files of modules that it imported."""
        new = len(sys.modules) - self._count
        # Only the youngest entries: to look at all 1,600 would copy 15 MiB of pages shared with the template.
        for name in list(itertools.islice(reversed(sys.modules), max(0, new))):
            file = getattr(sys.modules[name], "__file__", None)
            if isinstance(file, str) and file.startswith(self._prefix):
                self._seen[name] = (file, _stamp(file))
        self._count = len(sys.modules)

    def forget_changed(self) -> None:
        """Call before a cell."""
        for name, (file, stamp) in list(self._seen.items()):
            if name in sys.modules and _stamp(file) == stamp:
                continue
            del self._seen[name]
            sys.modules.pop(name, None)
            parent, _, child = name.rpartition(".")
            if parent in sys.modules:
                with contextlib.suppress(AttributeError):
                    delattr(sys.modules[parent], child)
        self._count = min(self._count, len(sys.modules))


def _stamp(file: str) -> object:
    try:
        info = os.stat(file)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino
