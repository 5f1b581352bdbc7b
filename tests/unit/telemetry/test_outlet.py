"""A log destination that takes nothing stops nobody, and what was dropped is counted and told."""

from __future__ import annotations

import io
import os
import threading

import pytest

from runner.telemetry.outlet import Outlet


def told(count: int) -> str:
    return f"dropped {count}\n"


def test_lines_leave_in_order() -> None:
    out = io.StringIO()
    outlet = Outlet(out, told)
    for number in range(100):
        outlet.write(f"{number}\n")
    outlet.settle()
    assert out.getvalue() == "".join(f"{number}\n" for number in range(100))
    outlet.close()


def test_a_full_pipe_stops_nobody_and_the_loss_is_told() -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    outlet = Outlet(stream, told, lines=10)
    line = "x" * 4095 + "\n"
    for _ in range(100):
        outlet.write(line)
    assert outlet.dropped >= 100 - 16 - 10 - 1
    outlet.settle(0.05)  # gives up: nobody reads
    lost = outlet.dropped
    taken = threading.Event()
    received: list[bytes] = []

    def read() -> None:
        while b"last" not in b"".join(received[-2:]):
            received.append(os.read(reader, 65536))
        taken.set()

    thread = threading.Thread(target=read)
    thread.start()
    outlet.settle()
    outlet.write("last\n")
    assert taken.wait(10)
    thread.join()
    text = b"".join(received).decode()
    assert f"dropped {lost}\n" in text
    assert text.count(line) == 100 - lost
    outlet.close()
    stream.close()
    os.close(reader)


def test_a_destination_that_is_gone_is_no_error(recwarn: pytest.WarningsRecorder) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    outlet = Outlet(stream, told)
    outlet.write("nobody\n")
    outlet.settle()
    assert outlet.dropped == 1
    outlet.close()
    outlet.close()
    stream.close()
    assert not recwarn.list
