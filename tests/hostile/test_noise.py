"""Cases 96, 99 and 100: what conversations do to each other and leave behind, in small.

One conversation goes through attacks while another measures a cell, an upload and a download; quiet figures come
from the same process just before. ``FOLIOBOX_REPEAT`` multiplies rounds, runs and conversations.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.hostile.support import measures, outside
from tests.support.runner import Chat, Runner, running

REPEAT = int(os.environ.get("FOLIOBOX_REPEAT", "1"))
RUNS, CONVERSATIONS = 1000 * REPEAT, 30 * REPEAT
MIB = 1 << 20
FORKS = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
SPIN = "import os\nfor _ in range(5): os.fork()\nwhile True: pass"
FULL = """
import os
fd = os.open("/tmp/f", os.O_CREAT | os.O_WRONLY)
try:
    while True:
        os.write(fd, bytes(1 << 20))
finally:
    os.unlink("/tmp/f")
"""
CHILD = (
    "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'x = [b\"x\" * (1 << 20) for _ in range(4000)]'])"
)
ATTACKS: tuple[tuple[str, dict[str, object]], ...] = (
    ("h = b'x' * (4 << 30)", {}),
    (CHILD, {}),
    (FORKS, {"timeout_ms": 1000}),
    ("open('big', 'wb').write(bytes(300 << 20))", {}),
    ("import os\nos.unlink('big')\nfor n in range(3000): open(f'f{n}', 'w').write(str(n))", {}),
    ("import glob, os\nfor name in glob.glob('f*'): os.unlink(name)", {}),
    (FULL, {}),
    ("import os\nfor n in range(30_000): os.close(os.open(f'/tmp/{n}', os.O_CREAT))", {}),
    ("import socket\nheld = []\nwhile True: held.append(socket.socketpair())", {}),
    ("import os\nopen('s', 'wb').truncate(1 << 40)", {}),
    ("import os\nfor _ in range(512): os.write(1, bytes(1 << 20))", {"timeout_ms": 20_000}),
    ("for i in range(5_000): display(i)", {}),
    ("from IPython.display import HTML\nfor _ in range(4): display(HTML('x' * (15 << 20)))", {}),
    ("raise ValueError('\\x00' * (50 << 20))", {}),
    (SPIN, {"timeout_ms": 2000}),
    ("import threading\nfor _ in range(300): threading.Thread(target=threading.Event().wait, daemon=True).start()", {}),
)


class Figures:
    """Seconds that a peer's three calls took, in one phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {"cell": [], "upload": [], "download": []}
        self.failed = 0

    def measure(self, chat: Chat, until: Callable[[], bool]) -> None:
        """Call in turn, until told to end; at least 20 times."""
        content = os.urandom(MIB)
        calls: dict[str, Callable[[], bool]] = {
            "cell": lambda: chat.run("print(1)")["stdout"] == "1\n",
            "upload": lambda: chat.put("peer.bin", content).status_code in (200, 201),
            "download": lambda: chat.get("peer.bin").content == content,
        }
        rounds = 0
        while rounds < 20 or not until():
            rounds += 1
            for name, call in calls.items():
                began = time.monotonic()
                try:
                    self.failed += not call()
                except (AssertionError, httpx.HTTPError):
                    self.failed += 1
                self.seconds[name].append(time.monotonic() - began)

    def p95(self, name: str) -> float:
        """Of one call, in seconds."""
        return statistics.quantiles(self.seconds[name], n=20)[-1]


@contextlib.contextmanager
def hostile(runner: Runner, rounds: int) -> Iterator[Callable[[], bool]]:
    """All attacks one after the other in a conversation of their own; gives whether that is over."""
    failures: list[str] = []

    def attack() -> None:
        with runner.client() as http:
            chat = Chat(http)
            for code, fields in ATTACKS * rounds:
                answer = http.post(
                    f"/v1/conversations/{chat.id}/execute", json={"code": code, "timeout_ms": 30_000, **fields}
                )
                if answer.status_code != 200:
                    failures.append(answer.text)
            chat.purge()

    thread = threading.Thread(target=attack, daemon=True)
    thread.start()
    yield lambda: not thread.is_alive()
    thread.join(240)
    assert not thread.is_alive()
    assert failures == []


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """A service of its own, whose counts nobody else changes."""
    with running(tmp_path_factory.mktemp("noise") / "data", SANDBOX_POOL_SIZE="0", SANDBOX_MAX_SESSIONS="64") as runner:
        yield runner


def test_100_one_hostile_conversation_leaves_anothers_p95_below_twice_its_quiet_figure(quiet: Runner) -> None:
    with quiet.client() as http:
        chat = Chat(http)
        chat.ok("print(1)")
        before, during = Figures(), Figures()
        began = time.monotonic()
        before.measure(chat, lambda: time.monotonic() - began > 5)
        with hostile(quiet, REPEAT) as over:
            during.measure(chat, over)
        chat.purge()
    assert before.failed == during.failed == 0
    table = {name: (round(before.p95(name) * 1000, 1), round(during.p95(name) * 1000, 1)) for name in before.seconds}
    print("p95 in ms, quiet and beside a hostile conversation:", table)
    slow = {name: pair for name, pair in table.items() if pair[1] > max(2 * pair[0], 20.0)}
    assert not slow, table


def test_99_a_thousand_runs_leave_nothing_behind(quiet: Runner) -> None:
    with quiet.client() as http:
        chat = Chat(http)
        for _ in range(100):
            chat.ok("print(1)")
        before = measures.counts(quiet)
        with measures.Peak(quiet.pid) as peak:
            for number in range(RUNS):
                chat.ok(f"print({number})")
        after = measures.counts(quiet)
        chat.purge()
    assert {name: after[name] - count for name, count in before.items() if after[name] > count + 3} == {}
    assert after["zombies"] == 0
    assert peak.grown_mib < 16


def test_96_conversations_made_and_deleted_at_once_return_all_counts(quiet: Runner) -> None:
    with quiet.client() as http:
        one = Chat(http)
        one.ok("print(1)")
        one.purge()
    before = measures.counts(quiet)
    answers: list[int] = []

    def live() -> None:
        with quiet.client() as http:
            url = f"/v1/conversations/{Chat(http).id}"
            answers.append(http.post(f"{url}/execute", json={"code": "print(1)"}).status_code)
            ready.wait(180)
            answers.append(http.delete(url).status_code)

    ready = threading.Barrier(CONVERSATIONS)
    threads = [threading.Thread(target=live, daemon=True) for _ in range(CONVERSATIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert sorted(answers) == [200] * CONVERSATIONS + [204] * CONVERSATIONS

    def grown() -> dict[str, int]:
        after = measures.counts(quiet)
        slack = {"descriptors": 8, "threads": 40}
        return {name: after[name] for name, count in before.items() if after[name] > count + slack.get(name, 0)}

    outside.wait_for(lambda: not grown(), f"all counts are back: {before}", 30)
