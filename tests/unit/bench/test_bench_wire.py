"""The HTTP clients against answers that arrive in awkward pieces."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.wire import Address, AsyncClient, Client, WireError, read_head


@contextmanager
def served(*pieces: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers one request with these pieces, and what it was sent."""
    seen: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                seen.append(connection.recv(65536))
                for piece in pieces:
                    connection.sendall(piece)

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1], seen
        thread.join()


PIECES = (b"HTTP/1.1 200 OK\r\ncontent-le", b"ngth: 8\r\nx: y\r\n\r", b'\n{"a"', b": 1}")


def test_blocking_client_puts_pieces_together() -> None:
    with served(*PIECES) as (port, seen), Client(Address(port, "key")) as client:
        answer = client.call("POST", "/x", b"{}")
    assert (answer.status, answer.json()) == (200, {"a": 1})
    assert seen[0].startswith(b"POST /x HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer key\r\n" in seen[0]
    assert seen[0].endswith(b"Content-Length: 2\r\n\r\n{}")


def test_asyncio_client_puts_pieces_together() -> None:
    async def talk(port: int) -> dict[str, object]:
        client = await AsyncClient.connect(Address(port, "key"))
        answer = await client.call("GET", "/x")
        await client.close()
        return answer.json()

    with served(*PIECES) as (port, _):
        assert asyncio.run(talk(port)) == {"a": 1}


def test_a_connection_that_ends_early_is_an_error() -> None:
    with served(PIECES[0]) as (port, _), Client(Address(port, "key")) as client, pytest.raises(WireError):
        client.call("GET", "/x")


def test_more_than_was_announced_is_an_error() -> None:
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}"
    with served(body) as (port, _), Client(Address(port, "key")) as client, pytest.raises(WireError, match="more than"):
        client.call("GET", "/x")


def test_other_statuses_are_errors_once_the_body_is_asked_for() -> None:
    with served(b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy") as (port, _), Client(Address(port, "k")) as client:
        answer = client.call("GET", "/x")
    assert answer.status == 503
    with pytest.raises(WireError, match="status 503: busy"):
        answer.json()


def test_heads() -> None:
    assert read_head(b"HTTP/1.1 204 No Content") == (204, 0)
    with pytest.raises(WireError, match="without a Content-Length"):
        read_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked")
