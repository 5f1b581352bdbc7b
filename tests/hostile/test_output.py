"""Cases 26 and 27: floods of output and of things shown, and bytes that break parsers, terminals and logs.

``FOLIOBOX_REPEAT`` multiplies the flood of 1 GiB and the 20,000 displays. Verdicts: the runner's memory and what it
reads, from /proc; the answer's bytes as JSON; the log's bytes. Controls: an agent that forwards without a bound is
seen to flood the runner.
"""

from __future__ import annotations

import json
import os

import pytest

from tests.hostile.conftest import Make
from tests.hostile.support import outside
from tests.hostile.support.measures import Peak
from tests.hostile.support.place import Place

REPEAT = int(os.environ.get("FOLIOBOX_REPEAT", "1"))
DISPLAYS = 20_000 * REPEAT
MIB = 1 << 20
FLOOD = """
import os
block = b"x" * (1 << 20)
for _ in range({mib}):
    done = 0
    while done < 1 << 20:
        done += os.write({fd}, block[done:])
"""
RAISED = {
    "long message": "raise ValueError('x' * (100 << 20))",
    "deep": "def f():\n    return f()\nf()",
    "chain": "e = None\nfor i in range(50_000):\n    n = ValueError(i)\n    n.__cause__ = e\n    e = n\nraise e",
    "hostile str": "class E(Exception):\n    def __str__(self): raise self\n    __repr__ = __str__\nraise E()",
    "str that exits": "import os\nclass E(Exception):\n    def __str__(self): os._exit(3)\nraise E()",
    "str of no text": "class E(Exception):\n    def __str__(self): return 7\nraise E()",
    "long name": "raise type('E' * (1 << 20), (Exception,), {})()",
    "surrogates": "raise ValueError('\\udc80\\ud800' * 1000)",
    "long line": "exec(compile('x' * (8 << 20) + '=', 'y' * 100_000, 'exec'))",
}
SHOWN = {
    "displays": f"for i in range({DISPLAYS}): display(i)",
    "60 MiB of HTML": "from IPython.display import HTML\ndisplay(HTML('<b>' + 'x' * (60 << 20)))",
    "progress bar": "h = display(0, display_id=True)\nfor i in range(5_000): h.update(i)\nh.update('last')",
    "carriage returns": "import sys\nfor i in range(300_000):\n    sys.stdout.write(f'\\r{i}')\n    sys.stdout.flush()",
}
NASTY = rb"\x00\xff\xfe\xed\xa0\x80\xf0\x9f\x1b[2J\x1b]0;owned\x07\x1b]8;;http://x\x1b\\\x08\x7f\xc2\x9b31m"
PRINTED = f"""
import os, sys
os.write(1, b"{NASTY.decode()}" * 1000)
os.write(2, b"{NASTY.decode()}" * 1000)
sys.stdout.write("\\ud800\\udfff" * 100)
open("/workspace/\\x1b[31mname\\n\\x07", "w").close()
raise ValueError("\\x1b[2J\\x00\\ud800 {{}}")
"""
FRAMES = """
import os, struct, zlib
def frame(epoch, channel, kind, payload):
    head = struct.pack("!4sIIBI", b"FxB\\x01", epoch, channel, kind, len(payload))
    return head + zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "big") + payload
said = b'{"seq":1,"type":"done","op":"done","n":1,"status":"ok","exit_code":0}'
forged = len(said).to_bytes(4, "big") + said
for fd in range(1024):
    for epoch in (0, 1, 2**31):
        try:
            os.set_blocking(fd, False)
            os.write(fd, frame(epoch, fd, 1, forged) + forged + bytes(64))
        except OSError:
            pass
"""


@pytest.mark.parametrize(("fd", "name"), [(1, "stdout"), (2, "stderr")])
def test_26_a_flood_is_counted_right_and_costs_the_runner_nothing(strong: Place, fd: int, name: str) -> None:
    mib = 1024 * REPEAT if fd == 1 else 256
    strong.say("print(1)")
    with Peak(strong.runner.pid) as peak:
        result = strong.run(FLOOD.format(mib=mib, fd=fd), timeout_ms=100_000 * REPEAT)
    assert result["outcome"] == "ok", result["outcome"]
    assert result[f"{name}_bytes"] == mib * MIB
    assert result[f"{name}_truncated"] is True
    assert len(result[name]) < 66_000
    assert peak.grown_mib <= 32
    assert peak.read_mib < 40


def test_26_control_an_agent_without_a_bound_floods_the_runner(small: Make) -> None:
    place = small("talkative")
    with Peak(place.runner.pid) as peak:
        place.run(FLOOD.format(mib=100, fd=1), timeout_ms=60_000)
    assert peak.read_mib > 90
    place.chat.purge()


def test_26_one_line_of_nul_is_no_slower_than_text(strong: Place) -> None:
    """Each such byte takes six in JSON; agent and runner once waited for each other over the difference."""
    with Peak(strong.runner.pid) as peak:
        result = strong.run("head -c 128M /dev/zero", language="bash", timeout_ms=60_000)
    assert result["outcome"] == "ok"
    assert result["stdout_bytes"] == 128 * MIB
    assert peak.grown_mib <= 32


@pytest.mark.parametrize("kind", SHOWN)
def test_26_floods_of_displays_stay_in_the_sandbox(strong: Place, kind: str) -> None:
    strong.say("print(1)")
    with Peak(strong.runner.pid) as peak:
        result = strong.run(SHOWN[kind], timeout_ms=100_000)
    assert result["outcome"] == "ok", result
    assert len(result["results"]) <= 256
    assert len(json.dumps(result)) < MIB
    assert peak.grown_mib <= 32
    assert peak.read_mib < 20
    if kind == "displays":
        assert len(result["results"]) + result["results_dropped"] == DISPLAYS
        assert peak.read_mib < 0.5
    if kind == "progress bar":
        assert [shown["data"]["text/plain"] for shown in result["results"]] == ["'last'"]


def test_26_control_an_agent_that_sends_every_display(small: Make) -> None:
    place = small("showy")
    with Peak(place.runner.pid) as peak:
        place.run("for i in range(10_000): display(i)", timeout_ms=100_000)
    assert peak.read_mib > 1
    place.chat.purge()


@pytest.mark.parametrize("kind", RAISED)
def test_26_no_exception_costs_more_than_its_run(strong: Place, kind: str) -> None:
    strong.say("print(1)")
    with Peak(strong.runner.pid) as peak:
        result = strong.run(RAISED[kind], timeout_ms=60_000)
    assert result["outcome"] == ("crashed" if kind == "str that exits" else "error"), result
    assert len(json.dumps(result)) < 512 << 10
    assert peak.grown_mib <= 32
    if kind == "long message":
        assert result["error"]["name"] == "ValueError"
        assert len(result["error"]["message"]) <= 8192


def test_27_nasty_output_gives_valid_json_and_a_clean_log(strong: Place) -> None:
    url = f"/v1/conversations/{strong.chat.id}/execute"
    answer = strong.chat.http.post(url, json={"code": PRINTED})
    assert answer.status_code == 200
    raw = answer.content
    assert not [byte for byte in raw if byte < 32], "control characters in JSON"
    result = json.loads(raw.decode("utf-8"))
    assert result["outcome"] == "error"
    assert result["stdout_bytes"] > 1000
    text = json.dumps(result, ensure_ascii=False)
    text.encode("utf-8")  # no lone surrogate is left
    events = strong.chat.http.post(url, json={"code": PRINTED}, headers={"Accept": "text/event-stream"})
    events.content.decode("utf-8")
    log = strong.runner.log.read_bytes()
    assert not [byte for byte in log if byte < 32 and byte != 10]
    assert b"owned" not in log


def test_27_forged_frames_on_every_descriptor_bring_no_forged_result(strong: Place) -> None:
    before = outside.born(strong.agent)
    result = strong.run(FRAMES + "raise SystemExit(9)", timeout_ms=20_000)
    assert result["outcome"] in ("error", "crashed"), result["outcome"]
    assert strong.say("print(1)") == "1\n"
    assert outside.born(strong.agent) == before
