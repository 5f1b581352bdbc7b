"""What the kernel counts by uid, and sandboxes of one uid share, costs others no variables and no new sandbox.

Descriptors under way over sockets: whoever has a lower limit of open files than the count may send none, and agents
send some to start interpreters and cells. Instances of inotify: an agent that gets none looks at every file instead.
Controls: code in the other sandbox, which has the sandbox's limits, is refused what its agent is not; and agents with
the same limits as code lose their interpreters.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx

from runner.model import SandboxLimits
from tests.support.runner import Chat, running

SUPPORT = Path(__file__).parents[1] / "support"
HOLD = """
import array, ctypes, errno, json, os, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
held, many = [], array.array("i", [os.open("/dev/null", os.O_RDONLY)] * 250)
def send(fds):
    held.extend(socket.socketpair())
    held[-2].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
def refusal(act):
    try:
        act()
    except OSError as error:
        return errno.errorcode[error.errno]
def watch():
    if libc.inotify_init1(0) < 0:
        raise OSError(ctypes.get_errno(), "")
def until_refused(act):
    for count in range(1000):
        if told := refusal(act):
            return count, told
"""
TAKE_ALL = HOLD + "print(json.dumps([until_refused(lambda: send(many)), until_refused(watch)]))"
REFUSED = HOLD + "print(json.dumps([refusal(lambda: send(many[:1])), refusal(watch)]))"
LIMIT = "import resource; print(list(resource.getrlimit(resource.RLIMIT_NOFILE)))"
MORE = """
import resource
for wanted in ((1025, 1025), (1024, 1 << 20)):
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, wanted)
        print("raised")
    except (OSError, ValueError):
        print("refused")
"""
MAPPED = """
import mmap
with open('/workspace/outputs/a', 'r+b') as file, mmap.mmap(file.fileno(), 3) as mapped:
    mapped[:] = b'new'
"""


NO_MORE = ["ETOOMANYREFS", "EMFILE"]


@contextlib.contextmanager
def fresh(data: Path, **more: str) -> Iterator[httpx.Client]:
    """A service without spares, so that every new conversation starts a sandbox."""
    with running(data, SANDBOX_POOL_SIZE="0", **more) as service, service.client() as client:
        yield client


def under_attack(http: httpx.Client) -> tuple[Chat, Chat]:
    """A conversation with a variable, and one that took, after that, all that it could get."""
    other, attacker = Chat(http), Chat(http)
    other.ok("kept = 41")
    assert [told for _, told in json.loads(attacker.ok(TAKE_ALL)["stdout"])] == NO_MORE
    return other, attacker


def test_code_has_the_limit_of_open_files_of_its_sandbox_and_cannot_raise_it(chat: Chat) -> None:
    limit = SandboxLimits().nofile
    assert json.loads(chat.ok(LIMIT)["stdout"]) == [limit, limit]
    assert chat.ok("ulimit -Sn; ulimit -Hn", language="bash")["stdout"].split() == [str(limit)] * 2
    assert chat.ok(MORE)["stdout"].split() == ["refused", "refused"]


def test_nobody_loses_by_another_who_takes_all_that_a_uid_may_have(tmp_path: Path) -> None:
    with fresh(tmp_path / "data") as http:
        other, _ = under_attack(http)
        assert json.loads(other.ok(REFUSED)["stdout"]) == NO_MORE
        after = other.ok("print(kept + 1)", stdin="in")
        assert (after["stdout"], after["interpreter"]) == ("42\n", "kept")
        newcomer = Chat(http)
        assert newcomer.ok("print(1)")["stdout"] == "1\n"
        newcomer.ok("with open('/workspace/outputs/a', 'w') as file: file.write('old')")
        assert newcomer.get("outputs/a").content == b"old"
        newcomer.ok(MAPPED)
        assert newcomer.get("outputs/a").content == b"new"
        assert newcomer.ok("print(1)", fresh=True)["stdout"] == "1\n"
        assert json.loads(other.ok(REFUSED)["stdout"]) == NO_MORE  # so all of that was under attack


def test_control_agents_with_the_limit_of_user_code_lose_their_interpreters(tmp_path: Path) -> None:
    site = os.pathsep.join((str(SUPPORT / "few_files_site"), str(SUPPORT.parents[2])))
    with fresh(tmp_path / "data", PYTHONPATH=site) as http:
        other, _ = under_attack(http)
        after = other.run("print(kept + 1)")
        assert after["interpreter"] != "kept" and after["stdout"] == "", after
