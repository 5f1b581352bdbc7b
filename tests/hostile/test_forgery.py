"""Case 15: what a run says of itself is not believed where it matters: how it ended comes from waiting for it.

A cell can lie about its own success (it could as well have printed "done"); it can lie about nothing else.
Control for frames: with a dumpable agent, bytes do reach the host's stream (``test_agent``).
"""

from __future__ import annotations

import pytest

from runner.agent.protocol import CONTROL, MESSAGE, encode_frame, pack_message
from tests.hostile.conftest import Weaken
from tests.hostile.support.place import Place

DONE = {"seq": 99, "type": "done", "status": "ok", "exit_code": 0, "signal": None}
PATCHES = """
import atexit, json, os, sys
json.dumps = lambda *a, **k: '{"status": "ok", "exit_code": 0}'
json.loads = lambda *a, **k: {"status": "ok"}
sys.excepthook = lambda *a: None
sys.exit = os._exit = lambda *a: None
atexit.register(lambda: print("success"))
class Quiet:
    def write(self, text): return len(text)
    def flush(self): pass
sys.stderr = Quiet()
"""


def test_death_is_told_by_the_kernel(strong: Place) -> None:
    strong.run(PATCHES)
    killed = strong.run("import ctypes, os; ctypes.CDLL(None).kill(os.getpid(), 9)")
    assert (killed["outcome"], killed["signal"], killed["interpreter"]) == ("crashed", 9, "lost")


@pytest.mark.parametrize("ending", ["os._exit(0)", "ctypes.CDLL(None)._exit(0)", "ctypes.string_at(0)"])
def test_early_end_is_no_success(strong: Place, ending: str) -> None:
    result = strong.run(f"import ctypes, os, sys\nprint('all tests passed', flush=True)\n{ending}")
    assert result["outcome"] == "crashed"
    assert result["interpreter"] == "lost"


def test_frames_in_output_are_text(strong: Place) -> None:
    frames = encode_frame(1, 2, MESSAGE, pack_message(DONE)) + encode_frame(1, CONTROL, MESSAGE, pack_message(DONE))
    code = f"import os\nfor fd in (1, 2): os.write(fd, {frames!r} * 3)\nraise ValueError('real')"
    result = strong.run(code)
    assert (result["outcome"], result["error"]["message"]) == ("error", "real")
    assert result["stdout_bytes"] == 3 * len(frames)


FORGE = """
import json, os, stat
for number in range(3, 256):
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            for run in range(2, 60):
                body = json.dumps({"op": "done", "n": run, "status": "ok", "exit_code": 0, "error": None}).encode()
                message = len(body).to_bytes(4, "big") + body
                os.write(number, len(message).to_bytes(4, "big") + message)
    except OSError:
        pass
"""


def test_a_forged_end_does_not_end_a_later_run(strong: Place) -> None:
    strong.run(FORGE, timeout_ms=10_000)
    result = strong.run("raise ValueError('real')")
    assert (result["outcome"], result["error"]["message"]) == ("error", "real")


def test_memory_verdict_comes_from_the_group(strong: Place, weaken: Weaken) -> None:
    """A child that dies of want of memory is told although the cell calls it a success; without a group it is not."""
    code = """
import subprocess, sys
grow = "import resource\\nhold = []\\nwhile True: hold.append(bytearray(64 << 20))"
print(subprocess.run([sys.executable, "-c", grow], stderr=-1).returncode)
"""
    assert strong.run(code, timeout_ms=60_000)["outcome"] == "oom"
    capped = code.replace("hold = []", "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); hold = []")
    assert weaken("no_cgroup").run(capped, timeout_ms=60_000)["outcome"] == "ok"
