"""Cases 12 and 13, finding 8: sandboxes see, touch and starve each other in no way that is promised against.

Controls: a shared /tmp, a shared IPC namespace, and one uid for all are seen to let through what the walls stop.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.hostile.conftest import Weaken, WeakService
from tests.hostile.support import outside
from tests.hostile.support.place import Place
from tests.support.differences import differs
from tests.support.runner import Chat, Runner

PLANT = """
import os, subprocess
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run/lock", "/home/sandbox", "/workspace", "/work", "/mnt"):
    try:
        open(f"{folder}/planted-here", "w").write("planted-by-a")
    except OSError:
        pass
"""
FIND = """
import os
found = []
for top, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(top, f) not in ("/usr", "/proc", "/opt", "/sys")]
    found += [os.path.join(top, name) for name in files if name == "planted-here"]
print(found)
"""
KILL = """
import os
hit = 0
for pid in range(1, 70000):
    if pid not in (1, os.getpid()):
        try:
            os.kill(pid, 0)
            hit += 1
        except OSError:
            pass
print(hit)
"""
SEGMENT = """
import ctypes
libc = ctypes.CDLL(None)
print(libc.shmget(0x466f6c69, 4096, {flags}) >= 0)
"""


@pytest.fixture
def second(http: httpx.Client, runner: Runner) -> Iterator[Place]:
    """Another conversation behind all walls."""
    chat = Chat(http)
    yield Place(runner, chat)
    chat.purge()


def test_files_are_not_shared(strong: Place, second: Place) -> None:
    strong.say(PLANT)
    assert "planted-here" in strong.say(FIND)
    assert second.say(FIND) == "[]\n"


def test_control_files_are_shared_through_one_tmp(weaken: Weaken, host_folder: Path) -> None:
    weaken("host_folder_as_tmp", folder=host_folder).say(PLANT)
    assert "/tmp/planted-here" in weaken("host_folder_as_tmp", folder=host_folder).say(FIND)


def test_processes_are_neither_seen_nor_hit(strong: Place, second: Place) -> None:
    pids = strong.processes()
    before = [outside.born(pid) for pid in pids]
    few = int(second.say(KILL))
    assert few <= 2
    second.run("import os, signal; os.kill(-1, signal.SIGKILL)")
    assert [outside.born(pid) for pid in pids] == before
    assert strong.say("print(1)") == "1\n"


def test_control_processes_are_hit_in_one_namespace_with_one_uid(weaken: Weaken) -> None:
    first = weaken("no_pid_namespace", "shared_uid")
    agent = first.agent
    weaken("no_pid_namespace", "shared_uid").run(
        f"import os, signal; os.kill({agent}, signal.SIGKILL)", timeout_ms=10_000
    )
    outside.wait_for(lambda: not outside.alive(agent), "the other sandbox's agent is dead")


def test_memory_segments_are_not_shared(strong: Place, second: Place) -> None:
    assert strong.say(SEGMENT.format(flags=0o1666)) == "True\n"
    assert second.say(SEGMENT.format(flags=0)) == "False\n"


def test_control_memory_segments_are_shared_in_one_namespace(weaken: Weaken) -> None:
    first = weaken("shared_ipc", "shared_uid")
    assert first.say(SEGMENT.format(flags=0o1666)) == "True\n"
    try:
        assert weaken("shared_ipc", "shared_uid").say(SEGMENT.format(flags=0)) == "True\n"
    finally:
        first.say("libc.shmctl(libc.shmget(0x466f6c69, 4096, 0), 0, None)")


LOCK = "import fcntl\nfile = open('/etc/os-release')\nfcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\nprint('locked')"


def test_locks_on_shared_files_are_a_channel_that_is_not_promised_away(strong: Place, second: Place) -> None:
    """Finding 16, written down so that nobody promises otherwise: one read-only file carries a bit."""
    assert strong.say(LOCK) == "locked\n"
    if differs("lock-channel"):
        assert second.say(LOCK) == "locked\n"
        return
    assert second.run(LOCK)["error"]["name"] == "BlockingIOError"


FORKS = """
import os, signal
children = []
try:
    for _ in range(400):
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except OSError:
    pass
print(len(children), flush=True)
open("/tmp/full", "w").close()
import time
time.sleep(60)
"""


def test_forks_of_one_starve_nobody_else(weaken: Weaken, weak_service: WeakService) -> None:
    """On the service of the controls, with no wall taken out: it keeps no spares, so that a start is needed."""
    with Starving(weaken()), weak_service.runner.client() as http:
        chat = Chat(http)
        assert chat.ok("import os; print(os.getpid() > 0)")["stdout"] == "True\n"
        chat.purge()


def test_control_one_uid_for_all_is_starved(weaken: Weaken, weak_service: WeakService) -> None:
    with Starving(weaken("shared_uid", "no_cgroup")), weak_service.runner.client() as http:
        weak_service.order(("shared_uid",), "")
        chat = Chat(http)
        answer = http.post(f"/v1/conversations/{chat.id}/execute", json={"code": "1"})
        assert answer.status_code == 503, answer.text
        chat.purge()


class Starving:
    """A run in a thread of its own that holds as many processes as it may; interrupted at the end."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._agent = place.agent
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with self._place.runner.client() as http:
            Chat(http, self._place.chat.id).run(FORKS, timeout_ms=45_000)

    def __enter__(self) -> Starving:
        self._thread.start()
        outside.wait_for(lambda: Path(f"/proc/{self._agent}/root/tmp/full").exists(), "all forks are made")
        return self

    def __exit__(self, *_: object) -> None:
        chat = self._place.chat
        chat.http.post(f"/v1/conversations/{chat.id}/interrupt", json={})
        self._thread.join(30)
        assert not self._thread.is_alive()
