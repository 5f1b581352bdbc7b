"""The way out: names are resolved and connections opened here, and nowhere else. Whether an address may be connected to
is not judged here.
"""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, ip_address
from typing import Final, Protocol

import httpcore

from runner.egress.addresses import IPAddress

_MOST_ADDRESSES: Final = 64
_RESOLVERS: Final = 64  # threads, made when they are needed; lookups.py says how many of them one caller can hold


class Network(Protocol):
    """What a client needs of the outside."""

    async def resolve(self, host: str) -> list[IPAddress]:
        """All addresses of a name. Raises OSError."""
        ...

    async def connect(self, address: IPAddress, port: int, timeout_s: float) -> httpcore.AsyncNetworkStream:
        """A TCP connection to that very address. Raises OSError and exceptions of httpcore."""
        ...

    def is_own(self, address: IPAddress) -> bool:
        """Whether an address is one of this machine's."""
        ...


class SystemNetwork:
    """The machine's own network, without any proxy."""

    def __init__(self) -> None:
        self._backend = httpcore.AnyIOBackend()
        self._threads = ThreadPoolExecutor(_RESOLVERS, thread_name_prefix="resolve")

    async def resolve(self, host: str) -> list[IPAddress]:
        """By the system's resolver; the dot at the end keeps search domains out."""
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _look_up, f"{host}.")
        addresses = list(dict.fromkeys(ip_address(str(item[4][0])) for item in found))
        if len(addresses) > _MOST_ADDRESSES:
            raise OSError(f"the name has more than {_MOST_ADDRESSES} addresses")
        return addresses

    async def connect(self, address: IPAddress, port: int, timeout_s: float) -> httpcore.AsyncNetworkStream:
        """An address in digits is not resolved again."""
        return await self._backend.connect_tcp(str(address), port, timeout_s)

    def is_own(self, address: IPAddress) -> bool:
        """By the source that the kernel would take to reach it; nothing is sent. A public address of this machine
        would lead past its firewall.
        """
        family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((str(address), 9))
            except OSError:
                return False  # there is no way to it; connecting will say so
            return ip_address(str(probe.getsockname()[0])) == address


def _look_up(name: str) -> list[tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str | int, ...]]]:
    return list(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM))  # type: ignore[arg-type]
