"""A run as a script of its own: a forked interpreter becomes what ``python3 FILE`` would be, and ends as that does.

It tells its exit status at its very end; where it does not come to that, the death of its process says how it ended.
What IPython and the figures of cells have put in place is taken away first; the libraries of the template stay
imported.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import io
import linecache
import os
import signal
import sys
import threading
import types
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, NoReturn

FOLDER = "/tmp"
_exit, _urandom, _open, _write, _close, _unlink = os._exit, os.urandom, os.open, os.write, os.close, os.unlink
_signal, _kill, _getpid = signal.signal, os.kill, os.getpid
_BROKEN = 70
_FLUSHED = (io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)


def become(code: bytes, shell: Any, tell: Callable[[int], None]) -> NoReturn:
    """Run ``code`` as ``__main__``, ``tell`` the exit status and end with it. Streams and folder were put right."""
    status, interrupted, me = _BROKEN, False, _getpid()
    path = f"{FOLDER}/sandbox_main_{_urandom(8).hex()}.py"
    try:
        _forget_shell(shell)
        _note_source(path, code)
        module = _main_module(path)
        _signal(signal.SIGINT, signal.default_int_handler)
        status, interrupted = _executed(code, path, module)
        _leave(module)
    finally:
        if _getpid() == me:
            with contextlib.suppress(OSError):
                _unlink(path)
            if interrupted:
                with contextlib.suppress(OSError):
                    _signal(signal.SIGINT, signal.SIG_DFL)
                    _kill(me, signal.SIGINT)
            tell(status)
        _exit(status)


def _forget_shell(shell: Any) -> None:
    """No trace of IPython: no ``display``, no ``get_ipython()``, no hooks, and figures stay open."""
    shell.display_pub.channel = shell.displayhook.channel = None
    type(shell).clear_instance()
    sys.displayhook, sys.excepthook = sys.__displayhook__, sys.__excepthook__
    for name in ("display", "get_ipython", "__IPYTHON__"):
        vars(builtins).pop(name, None)
    atexit.unregister(shell.atexit_operations)
    for info in getattr(weakref.finalize, "_registry", {}).values():
        info.atexit = False  # the template's temporary folders are not this script's to remove
    pyplot, figure = sys.modules.get("matplotlib.pyplot"), sys.modules.get("matplotlib.figure")
    if pyplot is not None and figure is not None:
        pyplot.show = lambda *_, **__: None  # type: ignore[attr-defined]
        figure.Figure.show = lambda *_, **__: None


def _note_source(path: str, code: bytes) -> None:
    """Where tracebacks and ``inspect`` find the source; in memory too, in case there is no room for the file."""
    with contextlib.suppress(OSError):
        fd = _open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(code)
            while view:
                view = view[_write(fd, view) :]
        finally:
            _close(fd)
    text = code.decode("utf-8", "replace")
    linecache.cache[path] = (len(code), None, text.splitlines(keepends=True), path)


def _main_module(path: str) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=path, __cached__=None, __builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = module
    sys.argv = [path]
    return module


def _executed(code: bytes, path: str, module: types.ModuleType) -> tuple[int, bool]:
    """The exit status, and whether it is that of an interrupt, which Python passes on as a signal."""
    try:
        exec(compile(code, path, "exec", dont_inherit=True), module.__dict__)
    except SystemExit as leaving:
        return exit_status(leaving), False
    except BaseException as error:
        _report(error)
        return 1, isinstance(error, KeyboardInterrupt)
    return 0, False


def exit_status(leaving: SystemExit) -> int:
    """What Python would make of it; a message goes to stderr."""
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    with contextlib.suppress(Exception):
        sys.stderr.write(f"{leaving.code}\n")
    return 1


def _report(error: BaseException) -> None:
    """The traceback on stderr, from the script's first line on, by whatever hook the script has set."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == _report.__code__.co_filename:
        trace = trace.tb_next
    error.__traceback__ = trace
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    try:
        sys.excepthook(type(error), error, trace)
    except BaseException:
        sys.__excepthook__(type(error), error, trace)


def _leave(module: types.ModuleType) -> None:
    """What Python does at its end: wait for threads, run ``atexit``, drop globals, write out what files hold."""
    steps: list[Callable[[], Any]] = [threading._shutdown, atexit._run_exitfuncs]  # type: ignore[attr-defined]
    steps += [lambda: _drop(module), _flush_all, gc.collect, _flush_all]  # a ring may close what is below a file first
    for step in steps:
        try:
            step()
        except SystemExit:
            continue
        except BaseException as error:
            with contextlib.suppress(BaseException):
                sys.__excepthook__(type(error), error, None)


def _drop(module: types.ModuleType) -> None:
    """Names with one underscore first, then the others, as Python empties a module."""
    names = module.__dict__
    for name in [name for name in names if name.startswith("_") and not name.startswith("__")]:
        names[name] = None
    for name in [name for name in names if name != "__builtins__"]:
        names[name] = None


def _flush_all() -> None:
    """Files that something still holds; Python closes them when it ends."""
    for stream in gc.get_objects():
        if type(stream) in _FLUSHED:
            with contextlib.suppress(Exception):
                stream.flush()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
