"""The interpreter: runs cells with IPython semantics in the forked process and reports what they show.

Whatever it says can be forged by the code it runs; the agent and the host treat it so. SIGINT raises
KeyboardInterrupt only while a cell runs, and only when the agent aimed it at that very run.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import sys
import traceback
import types
import warnings
from typing import Any

from .figures import FigureWatcher
from .protocol import pack_message

MAX_ITEM = 16 << 20
MAX_TRACEBACK = 64 << 10
_RUN_NUMBER = struct.Struct("!Q")


class Channel:
    """The socket to the agent."""

    def __init__(self, fd: int) -> None:
        self.sock = socket.socket(fileno=fd)
        self.number = 0

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next request with its descriptors; ends the process when the agent is gone."""
        fds = array.array("i")
        while True:
            try:
                data, ancillary, _, _ = self.sock.recvmsg(4096, socket.CMSG_SPACE(2 * fds.itemsize))
                break
            except InterruptedError:
                continue
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if not data:
            os._exit(0)
        return json.loads(data), list(fds)

    def send(self, body: dict[str, Any], attachments: tuple[bytes, ...] = ()) -> None:
        """One message to the agent."""
        packed = pack_message(body, attachments)
        self.sock.sendall(len(packed).to_bytes(4, "big") + packed)

    def display(self, kind: str, bundle: dict[str, Any], metadata: dict[str, Any]) -> None:
        """Send a MIME bundle; binary representations travel as bytes."""
        data: dict[str, Any] = {}
        binary: list[str] = []
        blobs: list[bytes] = []
        for mime, value in bundle.items():
            size = len(value) if isinstance(value, (str, bytes)) else 0
            if size > MAX_ITEM:
                data["text/plain"] = f"<{mime} of {size} bytes: too large to show, the limit is {MAX_ITEM}>"
            elif isinstance(value, bytes):
                binary.append(mime)
                blobs.append(value)
            else:
                data[mime] = value
        with contextlib.suppress(TypeError, ValueError):
            metadata = json.loads(json.dumps(metadata, default=str))
            data = json.loads(json.dumps(data, default=str))
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            body = {"op": "display", "n": self.number, "kind": kind, "data": data, "binary": binary}
            self.send({**body, "metadata": metadata}, tuple(blobs))


class Interrupts:
    """SIGINT handling: obeyed only between ``arm`` and ``disarm``, and only when aimed at that run."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.active = 0

    def __call__(self, *_: object) -> None:
        if self.active and _RUN_NUMBER.unpack(os.pread(self.target, _RUN_NUMBER.size, 0))[0] == self.active:
            raise KeyboardInterrupt

    def disarm(self) -> None:
        """From here on SIGINT is ignored; one that arrives on the way is swallowed."""
        while True:
            try:
                self.active = 0
                return
            except KeyboardInterrupt:
                continue


def make_shell(config: dict[str, Any]) -> Any:
    """An IPython shell without history, colours, terminal or pager, whose namespace is ``__main__``."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Hook(DisplayHook):
        channel: Any = None

        def write_output_prompt(self) -> None:
            """No ``Out[n]:`` prompt."""

        def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
            if self.channel is not None:
                self.channel.display("result", _decode(format_dict), md_dict or {})

        def finish_displayhook(self) -> None:
            """Nothing to flush."""

    class Publisher(DisplayPublisher):
        channel: Any = None

        def publish(self, data: Any, metadata: Any = None, source: Any = None, **_: Any) -> None:
            if self.channel is not None:
                self.channel.display("display", _decode(data), metadata or {})

        def clear_output(self, wait: bool = False) -> None:
            """There is nothing on a screen to clear."""

    class Shell(InteractiveShell):
        def enable_gui(self, gui: Any = None) -> None:
            """There is no screen."""

        def enable_matplotlib(self, gui: Any = None) -> tuple[str, str]:
            return "inline", "agg"

        def showtraceback(self, *_: Any, **__: Any) -> None:
            """Reported in the result instead."""

        def showsyntaxerror(self, *_: Any, **__: Any) -> None:
            """Reported in the result instead."""

    options = Config()
    options.HistoryManager.enabled = False
    options.InteractiveShell.autocall = 0
    options.InteractiveShell.cache_size = 1000
    options.InteractiveShell.colors = "nocolor"
    options.InteractiveShell.display_page = True
    options.InteractiveShell.xmode = "Plain"
    main_module = types.ModuleType("__main__")
    main_module.__dict__["__builtins__"] = __import__("builtins")
    sys.modules["__main__"] = main_module
    Shell._instance = None
    shell: Any = Shell.instance(
        config=options,
        user_module=main_module,
        displayhook_class=Hook,
        display_pub_class=Publisher,
    )
    warnings.filterwarnings("ignore", message="To exit: use 'exit'")
    shell.system = shell.system_raw
    shell.compile.get_code_name = lambda raw, transformed, number: f"<cell {number}>"
    shell.foliobox_figures = FigureWatcher(shell)
    shell.foliobox_root = config["root"]
    return shell


def _decode(bundle: dict[str, Any]) -> dict[str, Any]:
    """Binary images may come base64-encoded from formatters; keep them as bytes."""
    import base64

    out = dict(bundle)
    for mime in ("image/png", "image/jpeg", "application/pdf"):
        if isinstance(out.get(mime), str):
            with contextlib.suppress(ValueError):
                out[mime] = base64.b64decode(out[mime], validate=False)
    return out


WARM_CELLS = (
    "1",
    """
import pandas as pd, numpy as np
df = pd.DataFrame({"a": np.arange(3.0), "b": list("xyz")})
df.groupby("b").a.sum()
df.to_csv()
df""",
    """
import matplotlib.pyplot as plt
plt.figure(); plt.plot([1, -2]); plt.title("\u4e2d\u6587 \u0645");""",
    """
import weasyprint
font = weasyprint.CSS(string="@page { size: A4 } body { font-family: 'Noto Sans CJK SC' }")
weasyprint.HTML(string="<h1>\u4e2d\u6587</h1><p><b>x</b> \u4e2d</p>").write_pdf(stylesheets=[font])""",
    "await __import__('asyncio').sleep(0)",
    "1/0",
    "def",
    "raise SystemExit",
)


def warm(shell: Any) -> None:
    """Run typical first uses once, then forget every trace of them."""
    for cell in WARM_CELLS:
        result = shell.run_cell(cell, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            describe_error(error)
        shell.foliobox_figures.flush(shell.foliobox_figures.count_only)
    shell.reset(new_session=True, aggressive=False)
    shell.execution_count = 1
    shell.displayhook.flush()
    import linecache

    linecache.clearcache()


def describe_error(error: BaseException) -> dict[str, Any]:
    """Name, message, line in the cell, and a traceback without any frame of ours or of IPython."""
    summary = traceback.TracebackException.from_exception(error, capture_locals=False, compact=True)
    line = None
    todo: list[Any] = [summary]
    while todo:
        item = todo.pop()
        if item is None:
            continue
        frames = [f for f in item.stack if not _is_ours(f.filename)]
        item.stack = traceback.StackSummary.from_list(frames)
        todo += [item.__cause__, item.__context__, *(getattr(item, "exceptions", None) or [])]
    cells = [f.lineno for f in summary.stack if f.filename.startswith("<cell ")]
    if cells:
        line = cells[-1]
    if isinstance(error, SyntaxError) and str(error.filename).startswith("<cell "):
        line = error.lineno
    text = "".join(summary.format())
    if len(text) > MAX_TRACEBACK:
        text = text[: MAX_TRACEBACK // 2] + "\n… traceback shortened …\n" + text[-MAX_TRACEBACK // 2 :]
    try:
        message = str(error)
    except Exception as failure:
        message = f"<str() of the exception failed: {type(failure).__name__}>"
    return {"name": type(error).__name__[:200], "message": message[:8192], "traceback": text, "line": line}


def _is_ours(filename: str) -> bool:
    return filename.startswith("<foliobox_agent") or "/IPython/" in filename or filename == "<string>:loader"


def _cell_result(shell: Any, code: str, interrupts: Interrupts, number: int) -> dict[str, Any]:
    error: BaseException | None
    try:
        interrupts.active = number
        result = shell.run_cell(code, store_history=True)
        shell.foliobox_figures.flush(shell.display_pub.publish)
        interrupts.disarm()
        error = result.error_before_exec or result.error_in_exec
    except BaseException as escaped:
        interrupts.disarm()
        error = escaped
    if error is None:
        return {"status": "ok", "exit_code": 0, "error": None}
    if isinstance(error, SystemExit):
        return {"status": "exit", "exit_code": _exit_code(error), "error": None}
    status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
    with contextlib.suppress(Exception):
        return {"status": status, "exit_code": 1, "error": describe_error(error)}
    return {"status": status, "exit_code": 1, "error": {"name": type(error).__name__}}


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    sys.stderr.write(f"{error.code}\n")
    return 1


class _Streams:
    """Descriptors 0–2 and the sys objects over them, put right again before every cell."""

    def __init__(self, stdout: int, stderr: int) -> None:
        import fcntl

        self.spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 100) for fd in (stdout, stderr)]
        os.close(stdout)
        os.close(stderr)
        self.out: Any = None
        self.err: Any = None

    def prepare(self, stdin: int) -> None:
        os.dup2(stdin, 0)
        os.close(stdin)
        for number, spare in enumerate(self.spare, 1):
            os.dup2(spare, number)
        if self.out is None or self.out.closed or self.err.closed:
            self.out = open(1, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
            self.err = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout, sys.stderr = self.out, self.err
        for name, stream in (("__stdin__", sys.stdin), ("__stdout__", self.out), ("__stderr__", self.err)):
            setattr(sys, name, stream)

    def flush(self) -> None:
        for stream in (sys.stdout, sys.stderr, self.out, self.err):
            with contextlib.suppress(Exception):
                stream.flush()


def run_forever(shell: Any, stdout: int, stderr: int, control: int, target: int) -> None:
    """The loop of a forked interpreter; never returns."""
    channel = Channel(control)
    interrupts = Interrupts(target)
    streams = _Streams(stdout, stderr)
    streams.prepare(os.open(os.devnull, os.O_RDONLY))
    signal.signal(signal.SIGINT, interrupts)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    shell.displayhook.channel = shell.display_pub.channel = channel
    root = shell.foliobox_root
    if root not in sys.path:
        sys.path.append(root)
    with contextlib.suppress(Exception):
        _reseed()
    channel.send({"op": "ready"})
    while True:
        try:
            body, fds = channel.receive()
            _one_cell(shell, channel, interrupts, streams, body["n"], fds)
        except KeyboardInterrupt:
            continue


def _reseed() -> None:
    """Forked interpreters must not share the template's random state."""
    import random

    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
    with contextlib.suppress(Exception):
        asyncio.set_event_loop(None)


def _one_cell(
    shell: Any, channel: Channel, interrupts: Interrupts, streams: _Streams, number: int, fds: list[int]
) -> None:
    request_fd, stdin = fds
    with open(request_fd, "rb") as file:
        request = json.load(file)
    channel.number = number
    streams.prepare(stdin)
    with contextlib.suppress(OSError):
        os.chdir(shell.foliobox_root)
    before = dict(os.environ)
    os.environ.update(request["env"])
    try:
        result = _cell_result(shell, request["code"], interrupts, number)
    finally:
        for name in request["env"]:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)
    streams.flush()
    channel.number = 0
    channel.send({"op": "done", "n": number, **result})
