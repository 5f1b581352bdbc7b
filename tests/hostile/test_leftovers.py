"""What a run leaves behind is gone right after it, and costs the interpreter nothing. Verdict: the host's /proc."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tests.support.runner import Chat

SPAWN = """
import subprocess
ignore = "trap '' HUP INT QUIT TERM USR1 USR2 PIPE ALRM; exec sleep 600.25"
children = [subprocess.Popen(["sh", "-c", ignore], start_new_session=True) for _ in range(250)]
print(len(children))
"""
FORK = """
import os, signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
made = 0
for _ in range(240):
    try:
        pid = os.fork()
    except OSError:
        break
    if not pid:
        os.setsid()
        while True:
            time.sleep(60)
    made += 1
print(made)
"""


def sleepers() -> int:
    """Processes of the host that are children of such a run."""
    found = 0
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += b"sleep\x00600.25" in entry.read_bytes()
        except OSError:
            continue
    return found


def test_250_children_with_sessions_of_their_own_are_gone_half_a_second_after_the_run(chat: Chat) -> None:
    chat.ok("x = 1")
    began = time.monotonic()
    result = chat.ok(SPAWN)
    after = time.monotonic() - began - result["duration_ms"] / 1000
    assert result["stdout"] == "250\n"
    assert sleepers() == 0
    assert after < 0.5
    assert chat.ok("print(x)")["interpreter"] == "kept"


def test_control_they_are_there_as_long_as_the_run_lasts(chat: Chat) -> None:
    thread = threading.Thread(target=chat.ok, args=(SPAWN + "import time; time.sleep(1.5)",))
    thread.start()
    most = 0
    while thread.is_alive():
        most = max(most, sleepers())
        thread.join(0.05)
    assert most == 250
    assert sleepers() == 0


def test_forked_interpreters_are_gone_within_the_limit_and_the_interpreter_is_kept(chat: Chat) -> None:
    chat.ok("x = 1")
    result = chat.ok(FORK)
    assert int(result["stdout"]) >= 200
    assert chat.ok("print(x)")["interpreter"] == "kept"
    assert (
        chat.ok("import os; print([p for p in os.listdir('/proc') if p.isdigit()].__len__() < 10)")["stdout"]
        == "True\n"
    )
