"""Options of the listening socket, which every accepted connection inherits."""

from __future__ import annotations

import socket

from runner.api.connections import ConnectionsConfig, prepare


def test_answers_are_sent_without_waiting_for_more() -> None:
    """Accepted connections inherit the listener's options."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        prepare(listener, ConnectionsConfig(send_timeout_s=7))
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7000
