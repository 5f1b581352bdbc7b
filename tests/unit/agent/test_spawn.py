"""Starting programs: descriptors at their places, errors told, and no waiting for a child that was stopped."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.agent import spawn as module
from runner.agent.spawn import spawn

ENV = {"PATH": os.environ["PATH"]}
ROOT = Path(__file__).parents[3]
LIMITED = f"""
import os, resource, sys
sys.path.insert(0, {str(ROOT)!r})
from runner.agent import identity
from runner.agent.spawn import spawn
kind = resource.RLIMIT_NOFILE
if os.geteuid() == 0:
    os.setresuid(54321, 54321, 54321)
def child():
    sys.stdout.flush()
    os.waitpid(spawn("/bin/bash", ["bash", "-c", "ulimit -Sn; ulimit -Hn; ulimit -n 201 || echo no"], {{}}, {{}}, 5), 0)
resource.setrlimit(kind, (100, 300))
child()
identity.keep_files(int(sys.argv[1]))
print("agent", *resource.getrlimit(kind))
child()
"""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def lent(number: int) -> Iterator[None]:
    """A descriptor that pytest may need again."""
    try:
        kept = os.dup(number)
    except OSError:
        kept = -1
    try:
        yield
    finally:
        if kept >= 0:
            os.dup2(kept, number, inheritable=False)
            os.close(kept)
        else:
            os.close(number)


def test_descriptors_are_where_they_belong(tmp_path: Path) -> None:
    """Also one that has its number already."""
    script = "cat; cat <&9; ps -o sid= -p $$ | tr -d ' '; echo $$"
    (tmp_path / "in").write_text("in,")
    (tmp_path / "nine").write_text("nine,")
    with (
        opened(tmp_path / "in") as given,
        opened(tmp_path / "out") as out,
        opened(tmp_path / "nine") as nine,
        lent(9),
    ):
        os.dup2(nine, 9, inheritable=False)
        pid = spawn("/bin/bash", ["bash", "-c", script], ENV, {0: given, 1: out, 9: 9}, 5)
        assert os.waitpid(pid, 0)[1] == 0
    found = (tmp_path / "out").read_text()
    assert found == f"in,nine,{pid}\n{pid}\n"


@pytest.mark.parametrize(
    ("path", "env", "number"),
    [
        ("/no/such/program", {}, errno.ENOENT),
        ("/bin/true", {"BIG": "x" * (1 << 20)}, errno.E2BIG),
        ("/bin/true", {"NUL": "a\0b"}, errno.EINVAL),
    ],
)
def test_what_cannot_be_executed_is_told(
    monkeypatch: pytest.MonkeyPatch, path: str, env: dict[str, str], number: int
) -> None:
    born: list[int] = []
    fork = os.fork

    def noted() -> int:
        born.append(fork())
        return born[-1]

    monkeypatch.setattr(os, "fork", noted)
    with pytest.raises(OSError, match=os.strerror(number)) as raised:
        spawn(path, ["x"], env, {}, 5)
    assert raised.value.errno == number
    assert os.waitstatus_to_exitcode(os.waitpid(born[0], 0)[1]) == 127


def test_what_gvisor_calls_a_name_is_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernel refuses one that is too large with ENAMETOOLONG."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))

    monkeypatch.setattr(os, "execve", refuse)
    with pytest.raises(OSError, match=os.strerror(errno.E2BIG)):
        spawn("/bin/true", ["true"], {"BIG": "x"}, {}, 5)


@pytest.mark.parametrize("wait_s", [0, 0.2])
def test_a_child_stopped_before_it_executes_holds_nobody(monkeypatch: pytest.MonkeyPatch, wait_s: float) -> None:
    monkeypatch.setattr(module, "_become", lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
    began = time.monotonic()
    pid = spawn("/bin/true", ["true"], ENV, {}, wait_s)
    assert time.monotonic() - began < 10  # who is held is so for ever
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 127


@pytest.mark.parametrize(("given", "had"), [(200, "200"), (100_000, "300")])
def test_children_have_their_own_limit_of_open_files_and_the_agent_all_there_are(given: int, had: str) -> None:
    """As a user that has no powers; an engine that allows less than a child is to have sets the child's limit."""
    done = subprocess.run([sys.executable, "-I", "-c", LIMITED, str(given)], capture_output=True, text=True, timeout=30)
    before, after = done.stdout.split("agent 300 300\n")
    assert before.split() == ["100", "300"]
    assert after.split() == [had, had, *(["no"] if given == 200 else [])]
