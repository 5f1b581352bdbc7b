"""Fetches a file from the public web: every address is judged before it is connected to, and every redirect is followed
as if it had been asked for first.

What is sent holds no cookie, no credential and no trace of the caller. Proxy settings of the environment are not read:
the service fetches directly, or not at all.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakValueDictionary

import httpcore

from runner.egress import addresses, decoding, targets
from runner.egress.addresses import IPAddress
from runner.egress.config import FetchConfig
from runner.egress.lookups import Lookups
from runner.egress.network import Network, SystemNetwork
from runner.egress.pinned import Pinned
from runner.egress.targets import Target
from runner.errors import FetchFailed, FetchTimeout, TooLarge, UrlRefused
from runner.telemetry.logs import logger

_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HEADERS: Final = (
    (b"user-agent", b"Foliobox"),
    (b"accept", b"*/*"),
    (b"accept-encoding", b"identity"),
    (b"connection", b"close"),
)
_BROKEN: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ConnectionNotAvailable,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
    ssl.SSLError,
)
Judge = Callable[[IPAddress], str | None]
log = logger("egress")


class Sink(Protocol):
    """Takes a file as it comes. May raise to end the fetch."""

    async def write(self, chunk: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came: from where after all redirects, and how many bytes."""

    url: str
    size: int


class Client:
    """``judge`` says why an address must not be connected to; only tests give another one, or another network."""

    def __init__(
        self,
        config: FetchConfig,
        network: Network | None = None,
        judge: Judge = addresses.refusal,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._config, self._judge = config, judge
        self._network = network or SystemNetwork()
        self._lookups = Lookups(self._network)
        self._tls = tls
        self._turns = asyncio.Semaphore(config.at_once)
        self._own_turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def fetch(self, url: str, sink: Sink, max_bytes: int, caller: str = "") -> Fetched:
        """Write the file at an address into ``sink``. Nobody's fetches take the turns of all others.

        Raises UrlRefused, TooLarge, FetchFailed, FetchTimeout, and what the sink raises.
        """
        target = targets.parse(url)
        try:
            own = self._own_turns.setdefault(caller, asyncio.Semaphore(self._config.at_once_each))
            async with asyncio.timeout(self._config.total_s), own, self._turns:
                found = await self._follow(target, sink, max_bytes, caller)
        except TimeoutError:
            told = f"the file did not come within {self._config.total_s:g} s"
            log.info("not fetched", host=target.host, why="too slow")
            raise FetchTimeout(told, limit=int(self._config.total_s * 1000)) from None
        except UrlRefused as refused:
            log.info("refused to fetch", host=target.host, why=refused.detail)
            raise
        log.info("fetched", host=target.host, size=found.size)
        return found

    async def _follow(self, target: Target, sink: Sink, max_bytes: int, caller: str) -> Fetched:
        for _ in range(self._config.requests):
            async with self._asked(target, caller) as response:
                if response.status not in _REDIRECTS:
                    return Fetched(target.url, await _receive(response, sink, max_bytes))
                target = targets.follow(target, _location(response))
        raise FetchFailed(f"the server redirects more than {self._config.requests - 1} times")

    @asynccontextmanager
    async def _asked(self, target: Target, caller: str) -> AsyncIterator[httpcore.Response]:
        """The answer to one request, over a connection of its own."""
        pinned = Pinned(self._network, await self._allowed(target, caller))
        url = httpcore.URL(
            scheme=target.scheme.encode(), host=target.host.encode(), port=target.port, target=target.path.encode()
        )
        timeout = {"connect": self._config.connect_s, "read": self._config.silence_s, "write": self._config.silence_s}
        headers = [(b"host", target.authority.encode()), *_HEADERS]
        try:
            async with (
                httpcore.AsyncConnectionPool(self._context(target), max_connections=1, network_backend=pinned) as pool,
                pool.stream("GET", url, headers=headers, extensions={"timeout": timeout}) as response,
            ):
                yield response
        except httpcore.TimeoutException:
            raise FetchTimeout(f"{target.host} did not answer in time") from None
        except (*_BROKEN, OSError) as error:
            what = "does not speak HTTP as it should" if isinstance(error, httpcore.ProtocolError) else "is not reached"
            raise FetchFailed(f"{target.host} {what}", cause=repr(error)) from error

    def _context(self, target: Target) -> ssl.SSLContext | None:
        """Made once, when it is first needed: it reads all authorities that are trusted."""
        if target.scheme == "https" and self._tls is None:
            self._tls = httpcore.default_ssl_context()
        return self._tls

    async def _allowed(self, target: Target, caller: str) -> Sequence[IPAddress]:
        """All addresses of a target, when each of them may be connected to. Raises UrlRefused."""
        found = [target.address] if target.address is not None else await self._resolve(target.host, caller)
        for address in found:
            why = self._judge(address)
            if why is None and self._network.is_own(addresses.plain(address)):
                why = "of this very machine"
            if why is not None:
                raise UrlRefused(f"url: {target.host} leads to an address that is not public ({why})")
        return [addresses.plain(address) for address in found]

    async def _resolve(self, host: str, caller: str) -> Sequence[IPAddress]:
        try:
            found = await self._lookups.resolve(host, caller, self._config.connect_s)
        except TimeoutError:
            raise FetchTimeout(f"the name {host} was not resolved in time") from None
        except (OSError, UnicodeError, ValueError) as error:
            raise FetchFailed(f"there is no address of the name {host}", cause=repr(error)) from error
        if not found:
            raise FetchFailed(f"there is no address of the name {host}")
        return found


def _location(response: httpcore.Response) -> str:
    """Where a redirect leads. Raises FetchFailed."""
    found = {value for name, value in response.headers if name.lower() == b"location"}
    if len(found) != 1:
        raise FetchFailed(f"the server redirects ({response.status}) without saying where to, or to several places")
    try:
        return found.pop().decode("utf-8")
    except UnicodeDecodeError:
        raise FetchFailed("the server redirects to something that is no address") from None


async def _receive(response: httpcore.Response, sink: Sink, max_bytes: int) -> int:
    """Hand the body on; its bytes. Raises TooLarge as soon as that is known, and FetchFailed where there is none."""
    if response.status not in (200, 203):
        raise FetchFailed(f"the server answered HTTP {response.status}", upstream_status=response.status)
    named = [value.decode("latin-1") for name, value in response.headers if name.lower() == b"content-encoding"]
    encoding = decoding.encoding_of(named)
    size = 0
    async with aclosing(_raw(response, max_bytes)) as raw, aclosing(decoding.decoded(raw, encoding)) as plain:
        async for chunk in plain:
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            await sink.write(chunk)
    if size == 0:
        raise FetchFailed("the server answered with nothing")
    return size


async def _raw(response: httpcore.Response, max_bytes: int) -> AsyncGenerator[bytes, None]:
    """The body as it is sent; what is compressed is bounded like what is not."""
    declared = next((value for name, value in response.headers if name.lower() == b"content-length"), b"")
    if declared.isdigit() and int(declared[:18]) > max_bytes:
        raise _too_large(max_bytes)
    taken = 0
    async for chunk in response.aiter_stream():
        taken += len(chunk)
        if taken > max_bytes + 65536:
            raise _too_large(max_bytes)
        yield chunk


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the file has more than the {limit} bytes that may be fetched", limit=limit)
