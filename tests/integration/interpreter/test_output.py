"""Output: whatever bytes, however many."""

from __future__ import annotations

import resource

from runner.agent.protocol import STREAM_KEEP, TAIL_KEEP
from runner.model import Outcome
from tests.integration.interpreter.jail import Jail


def test_odd_bytes(jail: Jail) -> None:
    code = r"""
import os, sys
os.write(1, b'a\xffb\0c\x1b[31mred')
sys.stdout.write('\ud800 no newline')
os.write(2, 'é'.encode()[:1]); sys.stderr.flush(); os.write(2, 'é'.encode()[1:])
"""
    ran = jail.ok(code)
    assert ran.text() == "a\ufffdb\0c\x1b[31mred\\ud800 no newline"
    assert ran.text("stderr") == "é"


def test_a_character_cut_by_the_end_is_shown_as_such(jail: Jail) -> None:
    assert jail.ok("import os; os.write(1, 'é'.encode()[:1]);").text() == "\ufffd"


def test_a_long_stream_is_kept_up_to_its_limit_with_its_tail(jail: Jail) -> None:
    ran = jail.ok("import sys\nfor i in range(200): sys.stdout.write('%0999d\\n' % i * 100)\nprint('the end')")
    counts = ran.over.streams["stdout"]
    assert counts["total"] == 200 * 100 * 1000 + 8
    assert counts["forwarded"] == len(ran.text()) == STREAM_KEEP
    assert len(counts["tail"]) == TAIL_KEEP
    assert counts["tail"].endswith("199\nthe end\n")


def test_a_flood_ends_in_time_and_does_not_grow_the_host(jail: Jail) -> None:
    jail.ok("chunk = b'f' * (1 << 20)")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ran = jail.ok("import os\nfor i in range(200):\n    n = 0\n    while n < len(chunk): n += os.write(1, chunk[n:])")
    assert ran.over.streams["stdout"]["total"] == 200 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 << 10
    assert ran.seconds < 60


def test_both_streams_and_children_together(jail: Jail) -> None:
    loop = "for i in $(seq 500); do echo o$i; echo e$i >&2; done"
    ran = jail.ok(f"import subprocess\nsubprocess.run('{loop}', shell=True);")
    assert ran.text().split() == [f"o{i}" for i in range(1, 501)]
    assert ran.text("stderr").split() == [f"e{i}" for i in range(1, 501)]


def test_a_writer_left_behind_is_cut_off(jail: Jail) -> None:
    ran = jail.run("(while true; do echo x; done) & exit 0", language="bash", timeout_ms=5000)
    assert ran.outcome is Outcome.OK
    assert ran.over.survivors == 0
