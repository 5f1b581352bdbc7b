"""The small parts of the agent: loop, output streams, events of a run, reaper, tracebacks, kill loop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from runner.agent import protocol, system
from runner.agent.children import Reaper, exit_facts
from runner.agent.loop import Loop
from runner.agent.outputs import Stream
from runner.agent.protocol import CREDIT_WINDOW, Outbox
from runner.agent.runs import Run
from runner.agent.tracebacks import MAX_TRACEBACK, describe_error
from tests.unit.agent.test_protocol import decode


def test_a_handler_is_not_called_for_a_descriptor_that_has_a_new_owner() -> None:
    loop, called = Loop(), []
    first, second = os.pipe(), os.pipe()

    def take_over() -> None:
        called.append("first")
        loop.unwatch(second[0])
        for fd in second:
            os.close(fd)
        again = os.pipe()
        assert again == second
        loop.watch(again[0], lambda: called.append("wrong"))

    loop.watch(first[0], take_over)
    loop.watch(second[0], lambda: called.append("second"))
    os.write(first[1], b"x")
    os.write(second[1], b"x")
    loop.turn()
    assert called in (["first"], ["second", "first"])
    for fd in (*first, *second):
        os.close(fd)


def test_timers_fire_in_order_once_and_not_when_cancelled() -> None:
    loop, fired = Loop(), []
    numbers: dict[str, int] = {}

    def note(name: str, cancels: str | None = None) -> Callable[[], None]:
        def act() -> None:
            fired.append(name)
            if cancels:
                loop.cancel(numbers[cancels])

        return act

    numbers["a"] = loop.later(0, note("a", cancels="b"))
    numbers["b"] = loop.later(0, note("b"))
    numbers["c"] = loop.later(0.001, note("c"))
    loop.cancel(12345)
    while len(fired) < 2:
        loop.turn()
    assert fired == ["a", "c"]
    assert loop._until_next() is None


def test_stream_keeps_a_cap_a_tail_and_whole_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runner.agent.outputs.STREAM_KEEP", 10)
    monkeypatch.setattr("runner.agent.outputs.TAIL_KEEP", 4)
    stream = Stream("stdout")
    assert stream.take("aé".encode()[:2]) == "a"
    assert stream.take("aé".encode()[2:] + b"0123456") == "é0123456"
    assert stream.take(b"7") == ""
    assert stream.take(b"89abcdef") == ""
    assert stream.finish() == ("", {"total": 19, "forwarded": 10, "tail": "cdef"})


def make_run(outbox: Outbox) -> Run:
    return Run({"run": "r", "channel": 3, "timeout_ms": 1000}, b"", 1, outbox)


def test_no_event_is_forgotten_before_it_is_acknowledged() -> None:
    outbox = Outbox(1)
    run = make_run(outbox)
    while not run.backlogged:
        run.emit("stdout", {"text": "x" * 30_000})
    decode(outbox.pull(1 << 30))
    outbox.credit(3, CREDIT_WINDOW)
    sent = run.seq
    while not run._unacked_size > CREDIT_WINDOW:
        run.emit("stdout", {"text": "x" * 30_000})
        decode(outbox.pull(1 << 30))
        outbox.credit(3, CREDIT_WINDOW)
    assert run.backlogged
    run.acknowledge(sent)
    assert not run.backlogged
    outbox.reset(2)
    run.resend(9, sent + 2)
    frames = decode(outbox.pull(1 << 30))
    assert {(frame.epoch, frame.channel) for frame in frames} == {(2, 9)}
    assert len(frames) == run.seq - sent - 2
    assert protocol.unpack_message(frames[0].payload)[0]["seq"] == sent + 3


def test_reaper_tells_of_a_child_that_died_before_its_number_was_known() -> None:
    reaper, ended = Reaper(), list[int]()
    reaper.expecting = True
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 7"], {})
    deadline = time.monotonic() + 10
    while child not in reaper._early and time.monotonic() < deadline:
        reaper.reap()
    reaper.watch(child, ended.append)
    assert [exit_facts(status) for status in ended] == [{"exit_code": 7, "signal": None}]


def test_kill_loop_reaches_what_left_the_session_and_ignores_signals(request: pytest.FixtureRequest) -> None:
    script = "trap '' INT TERM HUP; for i in 1 2 3; do setsid sleep 100 & done; echo up; wait; sleep 100"
    with subprocess.Popen(["setsid", "bash", "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        mine = {pid for pid in system.others(()) if pid != process.pid}
        system.become_subreaper()
        request.addfinalizer(lambda: system._libc.prctl(system.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0))
        assert system.stop_and_wait(process.pid)
        os.kill(process.pid, signal.SIGCONT)
        keep = mine - _below(process.pid)
        assert system.kill_all(keep, process.poll, 5) == (True, 0)
        assert process.wait(5) == -9


def _below(pid: int) -> set[int]:
    parents = system.processes()
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


class Nasty(Exception):
    """Fails in every way."""

    def __str__(self) -> str:
        raise SystemExit


def nested(depth: int) -> Exception:
    error: Exception = ValueError("deepest")
    for _ in range(depth):
        error = ExceptionGroup("g", [error])
    return error


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (Nasty(), "Nasty"), (ValueError("x" * (1 << 20)), "ValueError"), (nested(300), "ExceptionGroup"),
        (ExceptionGroup("many", [ValueError(i) for i in range(5000)]), "ExceptionGroup"),
        (KeyError("\ud800"), "KeyError"), (BaseException(), "BaseException"),
        (SyntaxError("s", ("<cell 1>", None, None, None)), "SyntaxError"),
    ],
)  # fmt: skip
def test_any_exception_can_be_described(error: BaseException, name: str) -> None:
    try:
        raise error
    except BaseException as caught:
        described = describe_error(caught)
    assert described["name"] == name
    assert len(described["message"]) <= 8192
    assert len(described["traceback"]) <= MAX_TRACEBACK + 100
    assert described["line"] is None or isinstance(described["line"], int)
