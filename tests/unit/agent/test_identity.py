"""Where user code may not have the agent's uid: the agent stays 0 behind another, and children keep nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
UID = 54_321
TELL = f"""
import json, os, sys
sys.path.insert(0, {str(ROOT)!r})
from runner.agent import identity
def who():
    return [os.getresuid(), os.getresgid(), os.getgroups()]
def told(act):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            act()
            os.write(write, json.dumps(who()).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.wait()
    with os.fdopen(read) as file:
        return json.load(file)
def back():
    identity.give_up()
    try:
        os.setuid(0)
    except PermissionError:
        pass
before = told(identity.give_up)
identity.hold({UID})
print(json.dumps([before, who(), told(identity.give_up), told(back)]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root: another uid can be taken by nobody else")
def test_the_agent_keeps_what_its_children_give_up() -> None:
    done = subprocess.run([sys.executable, "-I", "-c", TELL], capture_output=True, check=True, timeout=30)
    before, agent, child, back = json.loads(done.stdout)
    assert before[0] == [0, 0, 0]  # without a uid in the configuration nothing is given up
    assert agent == [[0, UID, 0], [0, UID, 0], []]
    assert child == back == [[UID] * 3, [UID] * 3, []]
