"""Cases 29 and 30: a time limit against those that do not obey, and limits, priorities and cores that stay.

At its limit a run gets SIGINT, and SIGKILL 0.8 s later, so that it is over within a second; an interrupt by a
caller leaves it 5 s. Verdicts: the host's /proc. Controls: a patient agent, no filter, and cores allowed.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.hostile.conftest import Make, Weaken
from tests.hostile.support import measures, outside
from tests.hostile.support.measures import Background, has_file
from tests.hostile.support.place import Place

IGNORE = """
import os, signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
"""
STUBBORN = {
    "ignores": IGNORE + "while True: pass",
    "blocks": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
    "stopped": IGNORE + "os.kill(os.getpid(), signal.SIGSTOP)\nwhile True: pass",
    "children": IGNORE + """
for _ in range(20):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        while True: pass
while True: pass
""",
    "vfork": IGNORE + """
import subprocess
assert subprocess._USE_VFORK
while True:
    subprocess.run(["sh", "-c", "trap '' INT TERM; kill -STOP $$"])
""",
    "catches": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
}  # fmt: skip
RAISE = """
import ctypes, json, os, resource
libc = ctypes.CDLL(None, use_errno=True)
def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)
def syslog():
    if libc.klogctl(3, ctypes.create_string_buffer(100), 100) < 0:
        raise OSError(ctypes.get_errno(), "")
top = resource.RLIM_INFINITY
TRIES = {
    "nice": lambda: os.nice(-1),
    "nice of the agent": lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
    "nice of the agent's group": lambda: os.setpriority(os.PRIO_PGRP, 1, 19),
    "nice of its user": lambda: os.setpriority(os.PRIO_USER, 0, 19),
    "policy of the agent": lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
    "cores of the agent": lambda: os.sched_setaffinity(1, [0]),
    "real time": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
    "oom_score_adj": lambda: write("/proc/self/oom_score_adj", b"-1000"),
    "oom_score_adj of the agent": lambda: write("/proc/1/oom_score_adj", b"1000"),
    "core": lambda: resource.setrlimit(resource.RLIMIT_CORE, (top, top)),
    "nofile": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (65536, 65536)),
    "nproc": lambda: resource.setrlimit(resource.RLIMIT_NPROC, (top, top)),
    "fsize": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (top, top)),
    "memlock": lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (top, top)),
    "limits of the agent": lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1)),
    "kernel log": syslog,
    "kmsg": lambda: write("/dev/kmsg", b"canary"),
    "sysrq": lambda: write("/proc/sysrq-trigger", b"h"),
}
worked = []
for name, attempt in TRIES.items():
    try:
        attempt()
        worked.append(name)
    except (OSError, ValueError):
        pass
print(json.dumps(worked))
"""
CRASH = """
import os, signal
for folder in ("/tmp", "/workspace", "/home/sandbox"):
    if os.fork() == 0:
        os.chdir(folder)
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    print(os.wait()[1] & 127)
print([name for folder in ("/tmp", "/workspace", "/home/sandbox") for name in os.listdir(folder) if "core" in name])
"""


@pytest.mark.parametrize("kind", STUBBORN)
def test_29_whoever_does_not_obey_is_dead_within_a_second_of_the_limit(strong: Place, kind: str) -> None:
    strong.say("print(1)")
    groups = measures.folders(strong)
    began = time.monotonic()
    result = strong.run(STUBBORN[kind], timeout_ms=1000)
    took = time.monotonic() - began
    assert result["outcome"] == "timeout", result
    assert result["duration_ms"] <= 2000
    assert took < 3.0
    outside.wait_for(lambda: measures.processes(groups) <= measures.IDLE, "only a new interpreter is there", 1.0)
    assert strong.say("print(1)") == "1\n"


def test_29_control_a_patient_agent_lets_it_live(small: Make) -> None:
    place = small("patient")
    interpreter, born = place.interpreter, time.monotonic()
    with Background(
        place, "open('/tmp/full', 'w')\n" + STUBBORN["ignores"], has_file(place, "/tmp/full"), timeout_ms=500
    ):
        outside.wait_for(lambda: time.monotonic() - born > 4, "well past the limit")
        assert outside.alive(interpreter)
        os.kill(interpreter, 9)
    place.chat.purge()


def test_30_nothing_is_raised_and_the_agent_keeps_its_priority(strong: Place) -> None:
    agent = strong.agent
    assert json.loads(strong.say(RAISE)) == []
    fields = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()
    assert fields[16] == "0"
    assert Path(f"/proc/{agent}/oom_score_adj").read_text() == "0\n"
    assert outside.status(agent)["Cpus_allowed"] == outside.status(strong.runner.pid)["Cpus_allowed"]
    for pid in strong.processes():
        assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) >= 0


def test_30_control_without_a_filter_the_agent_is_put_behind_all_others(weaken: Weaken) -> None:
    place = weaken("no_seccomp")
    worked = json.loads(place.say(RAISE))
    assert {"nice of the agent", "cores of the agent", "policy of the agent"} <= set(worked)
    assert Path(f"/proc/{place.agent}/stat").read_text().rpartition(")")[2].split()[16] == "19"


def test_30_no_core_is_left_in_the_sandbox_or_on_the_host(strong: Place) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    assert strong.say(CRASH) == "11\n11\n11\n[]\n"
    for pid in (strong.runner.pid, strong.agent):
        folder = Path(os.readlink(f"/proc/{pid}/cwd"))
        assert not [name for name in os.listdir(f"/proc/{pid}/cwd") if name.startswith("core")], folder
    if pattern.startswith("/"):
        assert not list(Path(pattern).parent.glob("core*"))


def test_30_control_where_cores_are_allowed_they_are_there(weaken: Weaken) -> None:
    if Path("/proc/sys/kernel/core_pattern").read_text().startswith(("|", "/")):
        assert "unlimited" in Path(f"/proc/{weaken('cores').agent}/limits").read_text().split("core file size")[1][:40]
        return
    assert "core" in weaken("cores").say(CRASH).splitlines()[-1]
