"""Connections of one request: only to the addresses that were judged for it, whatever the host is called."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import httpcore

from runner.egress.addresses import IPAddress
from runner.egress.network import Network


class Pinned(httpcore.AsyncNetworkBackend):
    """A backend of httpcore that resolves nothing. The addresses are tried in turn, within the time for one."""

    def __init__(self, network: Network, addresses: Sequence[IPAddress]) -> None:
        self._network, self._addresses = network, addresses

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to one of the addresses; ``host`` is only what the server is called."""
        left, until = len(self._addresses), time.monotonic() + (timeout or 10.0)
        failure: Exception = httpcore.ConnectError("no address to connect to")
        for address in self._addresses:
            share = (until - time.monotonic()) / left  # so that one which is silent leaves time for the others
            if share <= 0:
                break
            try:
                return await self._network.connect(address, port, share)
            except (httpcore.ConnectError, httpcore.ConnectTimeout, OSError) as error:
                failure, left = error, left - 1
        raise failure

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Never."""
        raise httpcore.ConnectError("there is no way to a socket of this machine")

    async def sleep(self, seconds: float) -> None:
        """Never asked for: nothing is tried again."""
        raise httpcore.ConnectError("nothing is tried again")
