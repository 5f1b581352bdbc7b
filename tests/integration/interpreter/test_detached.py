"""What a detached run leaves running lives on, is seen in the next report, and ends where it has to."""

from __future__ import annotations

import time

from runner.model import Outcome
from tests.integration.interpreter.jail import Jail

COUNTER = """
import os, sys, time
if not os.fork():
    os.setsid()
    for number in range(100_000):
        with open('count.tmp', 'w') as file:
            file.write(str(number))
        os.replace('count.tmp', 'count.txt')
        time.sleep(0.002)
"""
ALIVE = (
    "import os; print(sum(open(f'/proc/{p}/comm').read() == 'sleep\\n' for p in os.listdir('/proc') if p.isdigit()))"
)


def test_it_lives_on_and_its_files_come_with_the_next_run(jail: Jail) -> None:
    jail.ok(COUNTER, script=True, detached=True)
    seen = []
    for _ in range(5):
        ran = jail.ok("import time; time.sleep(0.05)", script=True, detached=True)
        assert "count.txt" in ran.changed("created") | ran.changed("modified")
        [change] = [change for change in ran.over.changes if change.path == "count.txt"]
        content = ran.over.contents.get("count.txt")
        assert content is not None
        assert len(content) == change.size
        seen.append(int(content))
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_it_ends_with_a_run_that_is_not_detached(jail: Jail) -> None:
    both = 'until [ "$(cat /proc/[0-9]*/comm | grep -c sleep)" = 2 ]; do :; done'
    jail.ok(f"sleep 700 & setsid sleep 700 & {both}", language="bash", detached=True)
    assert jail.ok(ALIVE, script=True, detached=True).out == "2"
    assert jail.ok(ALIVE).out == "2"
    assert jail.ok(ALIVE).out == "0"


def test_it_ends_with_a_run_that_runs_out_of_time(jail: Jail) -> None:
    jail.ok("sleep 700 &", language="bash", detached=True)
    assert jail.run("sleep 700", language="bash", detached=True, timeout_ms=200).outcome is Outcome.TIMEOUT
    assert jail.ok(ALIVE, script=True).out == "0"


def test_without_the_flag_a_script_leaves_nothing(jail: Jail) -> None:
    jail.ok("import subprocess; subprocess.Popen(['sleep', '700'], start_new_session=True)", script=True)
    assert jail.ok(ALIVE, script=True).out == "0"


def test_what_it_prints_later_ends_nobody(jail: Jail) -> None:
    jail.ok(
        "(while true; do echo line || exit; sleep 0.01; done; touch died) & sleep 0.05", language="bash", detached=True
    )
    for _ in range(3):
        time.sleep(0.1)
        ran = jail.ok("import os; print(os.path.exists('died'))", script=True, detached=True)
        assert ran.out == "False"


def test_a_flood_of_it_leaves_the_agent_time(jail: Jail) -> None:
    jail.ok("yes & yes >&2 & sleep 0.05", language="bash", detached=True)
    began = time.monotonic()
    for _ in range(5):
        jail.ok("pass", script=True, detached=True)
    assert time.monotonic() - began < 10


def test_what_was_stopped_by_user_code_stays_stopped(jail: Jail) -> None:
    jail.ok(
        "setsid sleep 700 & until grep -q sleep /proc/$!/comm; do :; done; kill -STOP $!; echo $! > pid",
        language="bash",
        detached=True,
    )
    state = "print(open('/proc/' + open('pid').read().strip() + '/stat').read().split()[2])"
    assert jail.ok(state, script=True, detached=True).out == "T"
    assert jail.ok(state, script=True, detached=True).out == "T"


def test_a_shared_mapping_that_goes_on_is_seen(jail: Jail) -> None:
    jail.ok(
        "import mmap, os, time\n"
        "open('map', 'wb').write(bytes(4096))\n"
        "if not os.fork():\n"
        "    with open('map', 'r+b') as f: m = mmap.mmap(f.fileno(), 4096)\n"
        "    n = 0\n"
        "    while True:\n"
        "        n += 1; m[0:4] = n.to_bytes(4, 'big'); time.sleep(0.005)\n",
        script=True,
        detached=True,
    )
    found = set()
    for _ in range(4):
        ran = jail.ok("import time; time.sleep(0.05)", script=True, detached=True)
        assert "map" in ran.changed("created") | ran.changed("modified")
        found.add(jail.get("map")[:4])
    assert len(found) == 4


def test_killing_the_template_meanwhile_costs_at_most_this_sandbox(jail: Jail) -> None:
    jail.ok(
        "import os, signal, time\n"
        "if not os.fork():\n"
        "    time.sleep(0.1)\n"
        "    for p in os.listdir('/proc'):\n"
        "        if p.isdigit() and int(p) not in (1, os.getpid()):\n"
        "            try: os.kill(int(p), 9)\n"
        "            except OSError: pass\n",
        script=True,
        detached=True,
    )
    time.sleep(0.3)
    assert jail.ok("print(1)", script=True, timeout_ms=30_000).out == "1"
