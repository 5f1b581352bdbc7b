"""Runs as scripts: what ``python3 FILE`` would do, print and end with, in a process forked for the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from runner.model import Outcome
from tests.integration.interpreter.jail import Jail, Ran

ENDINGS = {
    "plain": "print(1)",
    "exit": "import sys; print('a'); sys.exit(3)",
    "exit-none": "raise SystemExit",
    "exit-256": "raise SystemExit(256)",
    "exit-negative": "raise SystemExit(-1)",
    "exit-text": "import sys; sys.exit('no input')",
    "error": "print('before')\ndef f():\n    return 1 / 0\n\nf()\n",
    "chained": "try:\n    {}['k']\nexcept KeyError as error:\n    raise ValueError('x') from error\n",
    "syntax": "print('never')\nx = = 1\n",
    "interrupt": "raise KeyboardInterrupt",
    "os-exit": "import os; os._exit(9)",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "terminated": "import os; os.kill(os.getpid(), 15)",
    "exec": "import os; os.execv('/bin/sh', ['sh', '-c', 'echo other; exit 5'])",
    "atexit": "import atexit; atexit.register(print, 'last'); print('first')",
    "atexit-after-error": "import atexit; atexit.register(print, 'last'); 1/0",
    "thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.2), print('late'))).start()",
    "hook": "import sys; sys.excepthook = lambda *a: print('mine', a[0].__name__); 1/0",
    "fork": "import os, sys\nif os.fork():\n    os.wait(); print('parent')\nelse:\n    print('child'); sys.exit(2)",
    "pool": "import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, 2]))",
    "last-expression": "41 + 1",
    "display": "display(1)",
    "shell": "get_ipython()",
    "magic": "!ls",
    "await": "import asyncio\nawait asyncio.sleep(0)",
    "argv": "import sys, os; print(len(sys.argv), sys.argv[0] == __file__, os.path.exists(__file__))",
    "main": "if __name__ == '__main__': print('main', __spec__, __package__)",
    "stdin": "import sys; print(repr(sys.stdin.read()))",
    "input": "input()",
    "pickled": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "source": "import inspect\ndef f(): return 1\nprint(inspect.getsource(f))",
    "show": "import matplotlib\nmatplotlib.use('agg')\nimport matplotlib.pyplot as p\np.plot([1]); p.show()\n"
    "print(p.get_fignums())",
}


def scrubbed(text: str) -> list[str]:
    """Lines without what names the file, and without the marks below a line, which differ between releases."""
    kept = [line for line in text.splitlines() if set(line.strip()) - set("~^") or not line.strip()]
    return ['  File "x"' + line[line.index('",') :] if line.startswith('  File "') else line for line in kept]


def real(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What Python makes of it."""
    file = folder / "script.py"
    file.write_text(code, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", str(file)]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def status(ran: Ran) -> int:
    """As ``subprocess`` tells it: a signal as a negative number."""
    seen = ran.over.observed
    return -seen.signal if seen.signal else seen.exit_code if seen.exit_code is not None else 999


@pytest.mark.parametrize("name", [name for name in ENDINGS if name != "show"])
def test_a_script_ends_and_prints_as_one_of_python(jail: Jail, tmp_path: Path, name: str) -> None:
    expected = real(ENDINGS[name], tmp_path)
    ran = jail.run(ENDINGS[name], script=True, timeout_ms=20_000)
    assert status(ran) == expected.returncode
    assert ran.text() == expected.stdout
    got, wanted = scrubbed(ran.text("stderr")), scrubbed(expected.stderr)
    if name == "input":
        got, wanted = got[-1:], wanted[-1:]
    assert got == wanted
    assert not ran.shown


def test_figures_stay_open_and_are_not_shown(jail: Jail) -> None:
    ran = jail.ok(ENDINGS["show"], script=True)
    assert ran.out == "[1]"
    assert not ran.shown


def test_nothing_is_kept_and_the_kept_interpreter_is_untouched(jail: Jail) -> None:
    jail.ok("x = 'kept'")
    assert jail.ok("x = 1; print(x)", script=True).out == "1"
    assert "NameError" in jail.run("print(x)", script=True).text("stderr")
    assert jail.ok("print(x)").out == "kept"


def test_files_that_the_script_left_open_are_written(jail: Jail) -> None:
    jail.ok("f = open('a.txt', 'w'); f.write('whole')", script=True)
    assert jail.get("a.txt") == b"whole"
    ran = jail.ok(
        "class A:\n    pass\na = A(); a.me = a; a.f = open('b.txt', 'w'); a.f.write('in a ring')", script=True
    )
    assert ran.changed("created") == {"b.txt"}
    assert jail.get("b.txt") == b"in a ring"


def test_its_file_lies_outside_the_workspace_and_is_gone_afterwards(jail: Jail) -> None:
    ran = jail.ok("print(__file__)", script=True)
    assert ran.out.startswith("/tmp/sandbox_main_")
    assert not ran.over.changes
    assert jail.ok(f"import os; print(os.path.exists({ran.out!r}))").out == "False"


def test_a_script_beyond_its_time_tells_where_and_keeps_what_it_printed(jail: Jail) -> None:
    ran = jail.run("print('early'); open('f', 'w').write('x')\nwhile True: pass", script=True, timeout_ms=300)
    assert ran.outcome is Outcome.TIMEOUT
    assert ran.out == "early"
    assert ran.changed("created") == {"f"}
    assert "KeyboardInterrupt" in ran.text("stderr")


def test_bash_is_not_changed_by_it(jail: Jail) -> None:
    assert jail.run("echo $HOME; exit 4", language="bash", script=True, env={"HOME": "/workspace"}).out == "/workspace"


def test_one_after_the_other_costs_milliseconds(jail: Jail) -> None:
    """Not a measurement: only that no Python is started for it."""
    jail.ok("pass", script=True)
    assert min(jail.ok("import pandas", script=True).seconds for _ in range(5)) < 0.25
