"""The way from a jail's port to the proxy: bytes both ways, ends that are passed on, bounds, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator

import pytest

from runner.agent.egress import hand_out
from runner.backends.bubblewrap import relay
from runner.backends.bubblewrap.relay import Relay, listener_of
from runner.backends.bubblewrap.share import Held, Share
from runner.telemetry import metrics


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """Here is no namespace of its own: any free port."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        number: int = sock.getsockname()[1]
    monkeypatch.setattr(relay, "HERE", ("127.0.0.1", number))
    return number


@contextlib.asynccontextmanager
async def relayed(port: int, target: tuple[str, int], share: Share | None = None) -> AsyncIterator[Relay]:
    door, theirs = socket.socketpair()
    hand_out(theirs.detach(), port)
    with door:
        listener = await listener_of(door, 5)
    made = Relay(target, "lab", share or Share(512))
    await made.start(listener)
    try:
        yield made
    finally:
        made.close()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def proxy() -> AsyncIterator[tuple[tuple[str, int], list[StreamWriter]]]:
    """Says everything in capitals, and good-bye once it has heard the end."""
    open_now: list[StreamWriter] = []

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        open_now.append(writer)
        while data := await reader.read(1 << 16):
            writer.write(data.upper())
            await writer.drain()
        writer.write(b"bye")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname(), open_now
    finally:
        server.close()
        for writer in open_now:
            writer.close()


async def test_bytes_go_both_ways_and_an_end_is_passed_on(port: int) -> None:
    async with proxy() as (target, _), relayed(port, target):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello" * 100_000)
        writer.write_eof()
        assert await reader.read(-1) == b"HELLO" * 100_000 + b"bye"
        writer.close()


async def test_no_more_than_so_many_at_a_time(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MOST", 3)
    before = refused("sandbox")
    async with proxy() as (target, open_now), relayed(port, target) as made:
        held = []
        for _ in range(3):
            held.append(await asyncio.open_connection("127.0.0.1", port))
            held[-1][1].write(b"x")
            assert await held[-1][0].read(1) == b"X"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read(1) == b""
        assert (made.refused, len(open_now), refused("sandbox") - before) == (1, 3, 1)
        for _, one in [*held, (reader, writer)]:
            one.close()


def refused(bound: str) -> float:
    """What the metrics say."""
    return metrics.REGISTRY.get_sample_value("foliobox_egress_refused_total", {"bound": bound}) or 0.0


async def test_a_sandbox_with_many_gives_one_up_for_a_sandbox_with_none(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    share, before = Share(3), refused("shared")
    async with proxy() as (target, _), relayed(port, target, share) as greedy:
        held = []
        for _ in range(3):
            held.append(await asyncio.open_connection("127.0.0.1", port))
            held[-1][1].write(b"x")
            assert await held[-1][0].read(1) == b"X"
        held[0][1].write(b"x")  # the first has moved last
        assert await held[0][0].read(1) == b"X"
        with socket.create_server(("127.0.0.1", 0)) as free:
            other: int = free.getsockname()[1]
        monkeypatch.setattr(relay, "HERE", ("127.0.0.1", other))
        async with relayed(other, target, share):
            reader, writer = await asyncio.open_connection("127.0.0.1", other)
            writer.write(b"y")
            assert await asyncio.wait_for(reader.read(1), 5) == b"Y"
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(held[1][0].read(1), 5) == b""
            for one in (held[0], held[2]):
                one[1].write(b"x")
                assert await asyncio.wait_for(one[0].read(1), 5) == b"X"
            assert (greedy.refused, refused("shared") - before) == (1, 1)
            for _, one_writer in [*held, (reader, writer)]:
                one_writer.close()


def test_shares_become_even_and_stay_within_the_bound() -> None:
    share, cut = Share(8), list[str]()

    def take(owner: str, now: float) -> Held | None:
        return share.take(owner, now, lambda: cut.append(owner))

    first = [take("a", now) for now in range(8)]
    assert None not in first
    taken = [take("b", 9) for _ in range(8)]
    assert (sum(one is not None for one in taken), cut) == (4, ["a"] * 4)
    assert take("a", 10) is None
    assert take("c", 10) is not None
    for one in (*first, *taken):
        if one is not None:
            share.give_back(one)  # also those that were cut
    assert None not in [take("d", 11) for _ in range(7)]


async def test_an_idle_connection_ends(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "IDLE_S", 0.05)
    async with proxy() as (target, _), relayed(port, target):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(1), 5) == b""
        writer.close()


async def test_a_proxy_that_is_gone_ends_the_connection(port: int) -> None:
    async with relayed(port, ("127.0.0.1", 9)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(1), 5) == b""
        writer.close()


async def test_closing_cuts_what_is_open(port: int) -> None:
    async with proxy() as (target, _):
        async with relayed(port, target):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x")
            assert await reader.read(1) == b"X"
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(1), 5) == b""
        writer.close()


@pytest.mark.parametrize("kind", ["nothing", "not listening", "another port", "unix", "datagram"])
async def test_another_socket_than_was_asked_for_is_refused(kind: str, port: int) -> None:
    door, theirs = socket.socketpair()
    made = {
        "not listening": lambda: socket.socket(),
        "another port": lambda: socket.create_server(("127.0.0.1", 0)),
        "unix": lambda: socket.socket(socket.AF_UNIX),
        "datagram": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    }.get(kind)
    with door, theirs:
        if made is None:
            theirs.shutdown(socket.SHUT_RDWR)
        else:
            with made() as sock:
                socket.send_fds(theirs, [b"listener"], [sock.fileno()])
        with pytest.raises(OSError, match="agent"):
            await listener_of(door, 5)


async def test_it_is_not_waited_for_for_ever() -> None:
    door, theirs = socket.socketpair()
    with door, theirs, pytest.raises(OSError, match="within"):
        await listener_of(door, 0.05)
