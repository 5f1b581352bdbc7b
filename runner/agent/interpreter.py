"""The IPython shell of the interpreter: without history, colours, terminal or pager; what it shows is reported."""

from __future__ import annotations

import base64
import contextlib
import linecache
import os
import subprocess
import sys
import types
import warnings
from typing import Any

from .figures import FigureWatcher
from .tracebacks import describe_error

BINARY = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"))
NO_PACKAGES = (
    "Packages cannot be installed in this sandbox: it has no network and its Python is read-only. "
    "Many are there already; `%pip list` shows them."
)

# Typical first uses, so that what is lazy in them happens once, in the template.
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
plt.figure(); plt.plot([1, -2], label="x"); plt.legend(); plt.title("\u4e2d\u6587 \u0645"); plt.show()""",
    """
import weasyprint
page = '''<html lang="zh"><style>@page { size: A4; margin: 2cm } body { font-family: "Noto Sans CJK SC", sans-serif }
td { border: 1px solid #888; padding: 4px }</style><h1>\u4e2d\u6587</h1><p>\u4e2d <b>x</b> <i>y</i></p>
<table><tr><th>\u4e2d<td>1</table><ul><li>\u4e2d</ul></html>'''
weasyprint.HTML(string=page).write_pdf()""",
    "await __import__('asyncio').sleep(0)",
    "1/0",
    "def",
    "raise SystemExit",
)
WARM_ERRORS = ("ZeroDivisionError", "SyntaxError", "SystemExit")


def _hook_class() -> Any:
    from IPython.core.displayhook import DisplayHook

    class Hook(DisplayHook):
        channel: Any = None

        def write_output_prompt(self) -> None:
            """No ``Out[n]:`` prompt."""

        def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
            if self.channel is not None:
                self.channel.display("result", _decode(format_dict), md_dict or {})

        def finish_displayhook(self) -> None:
            """Nothing to flush."""

    return Hook


def _publisher_class() -> Any:
    from IPython.core.displaypub import DisplayPublisher

    class Publisher(DisplayPublisher):
        channel: Any = None

        def publish(
            self,
            data: Any,
            metadata: Any = None,
            source: Any = None,
            *,
            transient: Any = None,
            update: bool = False,
            **_: Any,
        ) -> None:
            if self.channel is not None:
                kind = "update" if update else "display"
                self.channel.display(kind, _decode(data), metadata or {}, (transient or {}).get("display_id"))

        def clear_output(self, wait: bool = False) -> None:
            """There is nothing on a screen to clear."""

    return Publisher


def make_shell(config: dict[str, Any]) -> Any:
    """An IPython shell whose namespace is ``__main__``; give it a channel before it runs cells."""
    from IPython.core.autocall import ExitAutocall
    from IPython.core.interactiveshell import InteractiveShell

    class Leave(ExitAutocall):
        def __call__(self, code: object = None) -> None:
            """``exit`` and ``quit`` end the cell, not the interpreter."""
            raise SystemExit(code)

    class Shell(InteractiveShell):
        def enable_gui(self, gui: Any = None) -> None:
            """There is no screen."""

        def enable_matplotlib(self, gui: Any = None) -> tuple[str, str]:
            return "inline", "agg"

        def showtraceback(self, *_: Any, **__: Any) -> None:
            """Reported in the result instead."""

        def showsyntaxerror(self, *_: Any, **__: Any) -> None:
            """Reported in the result instead."""

    main_module = types.ModuleType("__main__")
    main_module.__dict__["__builtins__"] = __import__("builtins")
    sys.modules["__main__"] = main_module
    Shell._instance = None
    shell: Any = Shell.instance(
        config=_options(),
        user_module=main_module,
        displayhook_class=_hook_class(),
        display_pub_class=_publisher_class(),
    )
    warnings.filterwarnings("ignore", message="To exit: use 'exit'")
    shell.system = _system(shell)
    shell.compile.get_code_name = lambda raw, transformed, number: f"<cell {number}>"
    shell.foliobox_figures = FigureWatcher(shell)
    shell.foliobox_root = config["root"]
    shell.exiter = shell.user_ns["exit"] = shell.user_ns["quit"] = Leave()  # type: ignore[no-untyped-call]
    _refuse_packages(shell)
    return shell


def _system(shell: Any) -> Any:
    """``!command`` in bash; unlike IPython's own, an interrupt ends the cell and not only the command."""

    def system(command: str) -> None:
        expanded = shell.var_expand(command, depth=1)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        shell.user_ns["_exit_code"] = subprocess.call(expanded, shell=True, executable="/bin/bash")  # noqa: S602

    return system


def _options() -> Any:
    from traitlets.config import Config

    options = Config()
    options.HistoryManager.enabled = False
    options.InteractiveShell.autocall = 0
    options.InteractiveShell.cache_size = 1000
    options.InteractiveShell.colors = "nocolor"
    options.InteractiveShell.display_page = True
    options.InteractiveShell.xmode = "Plain"
    return options


def _refuse_packages(shell: Any) -> None:
    """``%pip install`` says at once that it cannot be done; what only looks still works."""
    from IPython.core.error import UsageError

    python = sys.executable

    def pip(line: str) -> None:
        if line.split()[:1] in (["list"], ["show"], ["freeze"], ["check"], ["--version"], ["help"]):
            shell.system(f"{python} -m pip --disable-pip-version-check {line}")
        else:
            raise UsageError(NO_PACKAGES)

    def refuse(_: str) -> None:
        raise UsageError(NO_PACKAGES)

    shell.register_magic_function(pip, magic_name="pip")
    for name in ("conda", "mamba", "micromamba", "uv"):
        shell.register_magic_function(refuse, magic_name=name)


def _decode(bundle: dict[str, Any]) -> dict[str, Any]:
    """Binary images may come base64-encoded from formatters; keep them as bytes."""
    out = dict(bundle)
    for mime in BINARY.intersection(out):
        if isinstance(out[mime], str):
            with contextlib.suppress(ValueError):
                out[mime] = base64.b64decode(out[mime], validate=False)
    return out


def warm(shell: Any) -> None:
    """Run typical first uses once, then forget every trace of them."""
    before = dict(os.environ)
    for cell in WARM_CELLS:
        result = shell.run_cell(cell, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is not None:
            describe_error(error)
            if type(error).__name__ not in WARM_ERRORS:
                raise error
        shell.foliobox_figures.flush(lambda **_: None)
    shell.reset(new_session=True, aggressive=False)
    shell.execution_count = 1
    shell.displayhook.flush()
    linecache.clearcache()
    os.environ.clear()
    os.environ.update(before)
