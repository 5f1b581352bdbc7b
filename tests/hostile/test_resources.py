"""Cases 17–20, 24 and 28: memory, processes, descriptors, sockets, terminals and processor time of one sandbox.

Where the other cases are: 21, 22, 23 and 25 in ``test_resources_space`` (folders and inodes also in
``test_memory``), 26 and 27 in ``test_output``, 29 and 30 in ``test_resources_limits``, 20 (one uid for all) also in
``test_neighbours``, children left behind in ``test_leftovers``, 96, 99 and 100 in ``test_noise``.
Verdicts are read from groups, /proc and socket counters of the host; each control takes the wall out and sees more.
"""

from __future__ import annotations

import time

from tests.hostile.conftest import Make
from tests.hostile.support import measures, outside
from tests.hostile.support.measures import Background, Watch, has_file
from tests.hostile.support.place import Place

MIB = 1 << 20
EAT = "held = []\nwhile len(held) < {mib}:\n    held.append(b'x' * (1 << 20))\nprint(len(held))"
CHILD = """
import subprocess, sys
child = subprocess.run([sys.executable, "-c", "held = []\\nwhile True: held.append(b'x' * (1 << 20))"])
print(child.returncode)
"""
FORKS = """
import os, signal
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        pass
"""
RELAY = """
import os
for _ in range(100):
    if os.fork() == 0:
        while True:
            try:
                if os.fork():
                    os._exit(0)
            except OSError:
                pass
import signal
signal.pause()
"""
SHELL_BOMB = ":(){ :|:& };:; sleep 60"
MANY = """
import os, signal
made = 0
try:
    for _ in range(400):
        if os.fork() == 0:
            signal.pause()
        made += 1
except OSError:
    pass
print(made, flush=True)
"""
THREADS = """
import threading
wait, made = threading.Event(), []
try:
    while True:
        made.append(threading.Thread(target=wait.wait, daemon=True))
        made[-1].start()
except RuntimeError:
    pass
open("/tmp/full", "w").close()
import signal
signal.pause()
"""
EXHAUST = """
import os, signal, socket
for kind in ("pipe", "socket", "terminal", "file"):
    if os.fork() == 0:
        held = []
        try:
            while True:
                if kind == "pipe":
                    held.append(os.pipe())
                elif kind == "socket":
                    held.append(socket.socketpair())
                elif kind == "terminal":
                    held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
                else:
                    held.append(os.open("/etc/passwd", os.O_RDONLY))
        except OSError as error:
            os.close(held[-1] if isinstance(held[-1], int) else held[-1][0] if kind == "pipe" else held[-1][0].detach())
            open(f"/tmp/{kind}", "w").write(f"{len(held)} {error.errno}")
        signal.pause()
while len([name for name in os.listdir("/tmp") if name in ("pipe", "socket", "terminal", "file")]) < 4:
    os.sched_yield()
open("/tmp/full", "w").close()
signal.pause()
"""
UDP = """
import signal, socket
source, held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
for _ in range(500):
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sink.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30)
    sink.bind(("127.0.0.1", 0))
    held.append(sink)
    try:
        for _ in range(200):
            source.sendto(bytes(1400), socket.MSG_DONTWAIT, sink.getsockname())
    except OSError:
        pass
open("/tmp/full", "w").close()
signal.pause()
"""
SPIN = """
import os, time
for _ in range(7):
    if os.fork() == 0:
        break
else:
    open("/tmp/full", "w").close()  # by the one that has started all the others
end = time.monotonic() + 20
while time.monotonic() < end:
    pass
"""


def test_17_memory_bomb_is_told_within_two_seconds_of_the_limit(small: Make) -> None:
    place, peer = small(), small()
    peer.say("kept = 1")
    groups = measures.folders(place)
    with Watch(lambda: measures.oom_kills(groups)) as watch:
        result = place.run(EAT.format(mib=1000), timeout_ms=60_000)
        told = time.monotonic()
    assert result["outcome"] == "oom"
    assert watch.highest >= 1
    assert told - watch.first <= 2.0
    assert peer.say("print(kept)") == "1\n"
    assert place.say("print(1)") == "1\n"
    place.chat.purge()
    peer.chat.purge()


def test_17_control_without_a_group_the_bomb_gets_all_it_wants(small: Make) -> None:
    place = small("no_cgroup")
    assert place.say(EAT.format(mib=500), timeout_ms=60_000) == "500\n"
    place.chat.purge()


def test_18_child_memory_bomb_costs_the_child_and_is_labelled_by_the_counter(small: Make) -> None:
    place = small()
    place.say("kept = 1")
    interpreter, groups = place.interpreter, measures.folders(place)
    born = outside.born(interpreter)
    before = measures.oom_kills(groups)
    result = place.run(CHILD, timeout_ms=60_000)
    assert (result["outcome"], result["stdout"]) == ("oom", "-9\n")
    assert measures.oom_kills(groups) > before
    assert outside.born(interpreter) == born
    assert place.say("print(kept)") == "1\n"
    place.chat.purge()


def test_19_fork_bombs_stay_below_the_cap_and_leave_nothing_and_the_conversation_goes_on(strong: Place) -> None:
    for code, language in ((FORKS, "python"), (RELAY, "python"), (SHELL_BOMB, "bash"), (FORKS, "python")):
        strong.say("print(1)")
        groups = measures.folders(strong)
        with Watch(lambda: measures.processes(groups)) as watch:  # noqa: B023
            began = time.monotonic()
            result = strong.run(code, language=language, timeout_ms=1500)
            took = time.monotonic() - began
        assert result["outcome"] == "timeout", result
        assert watch.highest <= 256
        assert took < 1.5 + 5  # the kernel takes seconds to end 250 interpreters that fork, under a quota of one core
        if all(path.exists() for path in groups.values()):
            outside.wait_for(lambda: measures.processes(groups) <= measures.IDLE, "the bomb is gone", 1.0)  # noqa: B023
    assert strong.say("print(1)") == "1\n"


def test_19_control_without_limits_there_are_more_processes(small: Make) -> None:
    place = small("no_cgroup", "no_process_limit")
    assert place.say(MANY) == "400\n"
    place.chat.purge()


def test_20_threads_of_one_starve_nobody_else(small: Make) -> None:
    place = small()
    groups = measures.folders(place)
    with Background(place, THREADS, has_file(place, "/tmp/full"), timeout_ms=60_000):
        assert 200 <= measures.processes(groups) <= 256
        second = small()
        assert second.say("import threading; t = threading.Thread(target=print); t.start(); t.join()") == "\n"
        second.chat.purge()
    place.chat.purge()


def test_24_descriptors_sockets_and_terminals_run_out_in_one_sandbox_only(strong: Place, small: Make) -> None:
    peer = small()
    peer.say("import os, pty, socket")
    before = len(outside.descriptors(strong.runner.pid))
    with Background(strong, EXHAUST, has_file(strong, "/tmp/full"), timeout_ms=60_000):
        agent = outside.descendants(strong.runner.pid)
        assert max(len(outside.descriptors(pid)) for pid in agent) <= 1024
        assert len(outside.descriptors(strong.runner.pid)) <= before + 8
        told = peer.say("a = pty.openpty(); b = socket.socketpair(); c = os.pipe(); print(len(a + b + c))")
        assert told == "6\n"
    seen = strong.say(
        "print(*(open(f'/tmp/{kind}').read() for kind in ('pipe', 'socket', 'terminal', 'file')))"
    ).split()
    assert seen[1::2] == ["24", "24", "28", "24"]
    assert int(seen[4]) <= 64
    assert outside.alive(strong.agent)
    peer.chat.purge()


def test_24_control_unbounded_terminals_are_taken_from_the_host(small: Make) -> None:
    place = small("unbounded_mounts")
    held = "import os\nheld = [os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY) for _ in range(100)]\nprint(len(held))"
    assert place.say(held) == "100\n"
    place.chat.purge()


def test_24_socket_buffers_are_bounded_for_each_sandbox(small: Make) -> None:
    place = small()
    before = measures.udp_mib()
    with Background(place, UDP, has_file(place, "/tmp/full"), timeout_ms=60_000):
        assert measures.udp_mib() - before < 320 / 16 + 8
    place.chat.purge()


def test_24_control_without_a_group_they_are_not(small: Make) -> None:
    place = small("no_cgroup")
    before = measures.udp_mib()
    with Background(place, UDP, has_file(place, "/tmp/full"), timeout_ms=60_000):
        assert measures.udp_mib() - before > 50
    place.chat.purge()


def cores(place: Place, wanted: float, limit_s: float) -> float:
    """Cores that a place's processes use while eight of them spin: of two looks in a row, until ``wanted`` is seen."""
    seen, deadline = 0.0, time.monotonic() + limit_s
    with Background(place, SPIN, has_file(place, "/tmp/full"), timeout_ms=60_000):
        pids = [pid for pid in outside.descendants(place.runner.pid) if place._is_here(pid)]
        while seen < wanted and time.monotonic() < deadline:
            began, used = time.monotonic(), measures.used_cpu_s(pids)
            outside.wait_for(lambda: time.monotonic() - began > 2, "two seconds")  # noqa: B023
            seen = max(seen, (measures.used_cpu_s(pids) - used) / (time.monotonic() - began))
    return seen


def test_28_spinning_processes_get_the_quota_and_less_weight_than_the_runner(strong: Place) -> None:
    groups = measures.folders(strong)
    assert measures.group_figure(groups, ("cpu", "cpu.shares"), "cpu.weight") in (512, 50)
    assert cores(strong, 1.1, 3) < 1.1


def test_28_control_without_a_group_they_get_more(small: Make) -> None:
    place = small("no_cgroup")
    place.processes()
    assert cores(place, 1.1, 15) >= 1.1
    place.chat.purge()
