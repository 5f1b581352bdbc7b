"""Case 14 on every column: a cell can neither end, stop, read nor write the agent, whatever the kernel protects.

Verdict: the answers of the kernel, the agent that goes on with the interpreter's variables, and on Docker's columns
the container that is the same one. Controls: ``test_controls.py``, for bubblewrap ``tests/hostile/test_agent.py``.
"""

from __future__ import annotations

import json

from tests.support import sandboxes
from tests.support.differences import differs
from tests.support.engines import docker
from tests.support.runner import Chat, Runner

REACH = r"""
import errno, json, os
def tried(attempt):
    try:
        attempt()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "done"
def descriptor(number, flags):
    fd = os.open(f"/proc/1/fd/{number}", flags | os.O_NONBLOCK)
    if flags == os.O_WRONLY:
        os.write(fd, b"x")
def memory():
    with open("/proc/1/mem", "r+b", buffering=0) as file:
        file.seek(int(open("/proc/1/maps").readline().split("-")[0], 16))
        file.read(1)
found = {
    "descriptors": [tried(lambda n=n: descriptor(n, f)) for n in range(3) for f in (os.O_WRONLY, os.O_RDONLY)],
    "memory": [tried(memory)],
    "program": [tried(lambda: os.readlink("/proc/1/exe"))],
    "facts": [tried(lambda: os.listdir("/proc/1/fd")), tried(lambda: open("/proc/1/environ", "rb").read())],
}
print(json.dumps(found))
"""
SIGNALS = """
import os
for number in (19, 20, 15, 2, 3, 6, 11, 9):
    try:
        os.kill(1, number)
    except OSError:
        pass
"""


def identity(runner: Runner) -> list[tuple[str, object]]:
    """The containers with what changes when one is started again."""
    if not sandboxes.on_engine():
        return []
    return sorted((name, docker.inspect(name)["State"]["StartedAt"]) for name in sandboxes.containers(runner))


def test_the_agent_cannot_be_read_or_written(chat: Chat) -> None:
    found = json.loads(chat.ok(REACH)["stdout"])
    assert {*found["descriptors"], *found["memory"], *found["program"]} <= {"EACCES", "EPERM"}
    assert {*found["facts"]} == ({"done"} if differs("agent-facts") else {"EACCES"})


def test_the_agent_can_be_neither_killed_nor_stopped(chat: Chat, runner: Runner) -> None:
    chat.ok("kept = 41")
    before = identity(runner)
    chat.ok(SIGNALS)
    after = chat.ok("print(kept + 1)")
    assert (after["stdout"], after["interpreter"]) == ("42\n", "kept")
    assert set(before) <= set(identity(runner))


def test_everybody_in_reach_killed_costs_at_most_the_interpreter(chat: Chat, runner: Runner) -> None:
    chat.ok("import os, signal")
    before = identity(runner)
    chat.run("os.kill(-1, signal.SIGSTOP)", timeout_ms=3_000)
    chat.run("os.kill(-1, signal.SIGKILL)")
    assert chat.ok("print(6 * 7)")["stdout"] == "42\n"
    assert set(before) <= set(identity(runner))
