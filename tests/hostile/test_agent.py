"""Case 14 and same-uid attacks: the agent and the template stand, whatever processes of their uid try.

Verdict from outside: the agent is the same process, not stopped, the memory with its arguments is unchanged,
and the conversation goes on. Controls: an agent that is not PID 1 is killed; one that stays dumpable has its
memory overwritten and its stream filled with garbage; without the filter its limits are taken away.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.hostile.conftest import Weaken
from tests.hostile.support import outside
from tests.hostile.support.place import Place

ATTACKS = {
    "signals": """
import os, signal
for number in range(1, 65):
    for target in (1, os.getppid()):
        try:
            os.kill(target, number)
        except OSError:
            pass
""",
    "everybody": "import os, signal; os.kill(-1, signal.SIGSTOP)",
    "massacre": "import os, signal; os.kill(-1, signal.SIGKILL)",
    "siblings": """
import os, signal
for pid in [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
    os.kill(pid, signal.SIGSTOP)
""",
    "descriptors": """
import os
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        for number in range(20):
            for flags in (os.O_WRONLY | os.O_NONBLOCK, os.O_RDONLY | os.O_NONBLOCK):
                try:
                    fd = os.open(f"/proc/{pid}/fd/{number}", flags)
                    os.write(fd, b"x" * 65536) if flags & os.O_WRONLY else os.read(fd, 65536)
                except OSError:
                    pass
""",
    "memory": """
import os
for pid in (1, 2):
    try:
        fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(int(fields[45]))
            memory.write(b"owned")
    except (OSError, ValueError):
        pass
""",
    "limits": """
import resource
for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
    for pid in (1, 2):
        try:
            resource.prlimit(pid, kind, (0, 0))
        except OSError:
            pass
""",
    "ptrace": """
import ctypes
libc = ctypes.CDLL(None)
for pid in (1, 2):
    libc.ptrace(16, pid, 0, 0)
    libc.ptrace(0x4206, pid, 0, 0)
""",
    "stolen descriptors": """
import ctypes, os
libc = ctypes.CDLL(None)
for number in range(3):
    fd = libc.syscall(438, libc.syscall(434, 1, 0), number, 0)
    if fd >= 0 and number == 1:
        os.set_blocking(fd, True)
        for _ in range(400):
            os.write(fd, b"x" * 65536)
""",
    "own descriptors": "import os; os.closerange(0, 4096)",
    "garbage": """
import os, stat
for number in range(3, 256):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            os.write(number, b"\\xff" * 4096)
    except OSError:
        pass
""",
    "oom scores": """
for pid in (1, 2):
    try:
        open(f"/proc/{pid}/oom_score_adj", "w").write("1000")
    except OSError:
        pass
""",
}
# Kills everybody else, then stops every process that is born for a while: the agent must not wait for one of these.
STOP_NEWBORN = """
import os, signal, time
me = os.getpid()
def others():
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, me)]
for pid in others():
    os.kill(pid, signal.SIGKILL)
until = time.monotonic() + 2
while time.monotonic() < until:
    for pid in others():
        try:
            os.kill(pid, signal.SIGSTOP)
        except OSError:
            pass
"""
QUIET = ("descriptors", "memory", "limits", "ptrace", "stolen descriptors", "oom scores")


def test_agent_is_out_of_reach(strong: Place) -> None:
    """Attacks that change nothing at all."""
    agent, interpreter = strong.agent, strong.interpreter
    before = facts(agent)
    for name in QUIET:
        result = strong.run(ATTACKS[name], timeout_ms=20_000)
        assert result["outcome"] == "ok", (name, result)
        assert facts(agent) == before, name
    assert (strong.agent, strong.interpreter) == (agent, interpreter)


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - set(QUIET)))
def test_agent_survives(strong: Place, name: str) -> None:
    """Attacks that may cost the run and its interpreter, which have no shelter from their own uid."""
    agent = strong.agent
    before = facts(agent)
    strong.run(ATTACKS[name], timeout_ms=1_500)
    assert facts(agent) == before
    assert strong.say("print(6 * 7)") == "42\n"
    assert strong.agent == agent


@pytest.mark.parametrize(
    ("ending", "outcome"), [("", "ok"), ("while True: pass", "timeout"), ("os._exit(1)", "crashed")]
)
def test_agent_does_not_wait_for_stopped_newborns(strong: Place, ending: str, outcome: str) -> None:
    agent = strong.agent
    began = time.monotonic()
    result = strong.run(STOP_NEWBORN + ending, timeout_ms=3_000)
    assert time.monotonic() - began < 3 + 1
    assert result["outcome"] == outcome
    assert strong.agent == agent
    assert strong.say("print(6 * 7)") == "42\n"
    assert strong.say("print(6 * 7)", fresh=True) == "42\n"


def facts(agent: int) -> tuple[object, ...]:
    """What must not change of the agent; it must be neither stopped nor traced."""
    assert outside.status(agent)["State"][0] in "RSD"
    assert outside.status(agent)["TracerPid"] == "0"
    limits = Path(f"/proc/{agent}/limits").read_text()
    score = Path(f"/proc/{agent}/oom_score_adj").read_text()
    return outside.born(agent), outside.argument_area(agent), limits, score


def test_template_stands_or_is_replaced(strong: Place) -> None:
    """The template has no shelter from signals, only from being read: what is forked later is a new one's."""
    template = strong.template
    before = outside.argument_area(template)
    for name in ("memory", "ptrace", "limits", "descriptors"):
        strong.run(ATTACKS[name])
    assert outside.argument_area(template) == before
    strong.run("import os, signal; os.kill(-1, signal.SIGSTOP)", timeout_ms=1_500)
    assert strong.run("import os; os._exit(1)")["outcome"] == "crashed"
    assert strong.say("print(1)") == "1\n"
    strong.run(f"import os, signal; os.kill({outside.inner_pid(strong.template)}, signal.SIGKILL); os._exit(1)")
    assert strong.say("print(2)") == "2\n"


def test_control_an_agent_that_is_not_pid_1_is_killed(weaken: Weaken) -> None:
    place = weaken("agent_not_pid_1")
    agent = place.agent
    assert place.run("import os, signal; os.kill(os.getppid(), signal.SIGKILL)")["outcome"] == "crashed"
    outside.wait_for(lambda: not outside.alive(agent), "the agent is dead")


def test_control_a_dumpable_agent_is_overwritten(weaken: Weaken) -> None:
    place = weaken("dumpable", "no_seccomp")
    agent = place.agent
    place.say(ATTACKS["memory"])
    assert outside.argument_area(agent).startswith(b"owned")


def test_control_a_dumpable_agent_has_its_stream_filled(weaken: Weaken) -> None:
    """Garbage on the stream ends the sandbox; behind the walls the same cell gets no descriptor (above)."""
    place = weaken("dumpable", "no_seccomp")
    assert place.run(ATTACKS["stolen descriptors"], timeout_ms=20_000)["outcome"] == "crashed"


def test_control_without_the_filter_limits_are_taken_away(weaken: Weaken) -> None:
    """RLIMIT_CPU even ends PID 1, which no signal of its own namespace could."""
    place = weaken("no_seccomp")
    agent = place.agent
    place.run(ATTACKS["limits"])
    outside.wait_for(lambda: not outside.alive(agent), "the agent has used up its processor time")


def test_agent_killed_from_outside_costs_its_sandbox_only(strong: Place) -> None:
    strong.say("open('kept.txt', 'w').write('kept')")
    agent = strong.agent
    os.kill(agent, signal.SIGKILL)
    outside.wait_for(lambda: strong.run("1")["outcome"] == "ok", "the conversation has a new sandbox")
    assert strong.say("print(open('kept.txt').read())") == "kept\n"
    assert not outside.alive(agent)
