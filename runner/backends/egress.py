"""What an operator grants of the network: two settings, what became of them, and what sandboxes are told.

A sandbox with network reaches one proxy and nothing else. Which hosts that lets through is the proxy's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

from runner import environment
from runner.errors import ConfigurationError

NETWORK: Final = "SANDBOX_EGRESS_NETWORK"
PROXY: Final = "SANDBOX_EGRESS_PROXY"
NOT_SET: Final = f"{NETWORK} is not set"
PACKAGES: Final = "/tmp/packages"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.]{2,45}\]")
_RESERVED: Final = ("host", "none", "container", "default")
_ANSWER_S: Final = 2.0
_PAUSE_S: Final = 0.25
SURE_AFTER: Final = 2  # looks: one missed answer is a busy proxy
PATIENCE_S: Final = 5.0  # at a start: a proxy that is started beside the service may come up a little later


@dataclass(frozen=True, slots=True)
class Egress:
    """Whether sandboxes with network can be had: ``on`` is None while that is neither seen nor refuted.

    ``open``: the network leads past the proxy, which an operator is to be told in every way there is. ``lost``: it was
    on since the service was started, so that it may come back.
    """

    on: bool | None = False
    detail: str = NOT_SET
    open: bool = False
    lost: bool = False


class Looks:
    """What looks at egress amount to, one after another: one that failed is no end, and what was on may come back."""

    def __init__(self) -> None:
        self._failed, self._was_on = 0, False

    def first(self, seen: Egress) -> Egress:
        """After a look that counts by itself: it was a patient one."""
        self._failed = 0
        self._was_on = self._was_on or seen.on is True
        return replace(seen, lost=True) if seen.on is False and self._was_on else seen

    def next(self, known: Egress, seen: Egress) -> Egress:
        """After another look; what was known for as long as that does not say otherwise for sure."""
        if seen.on is None:
            return known
        if seen.on is False and known.on:
            self._failed += 1
            if self._failed < SURE_AFTER:
                return known
        return self.first(seen)


@dataclass(frozen=True, slots=True)
class EgressConfig:
    """``network`` is a network of the engine (with bubblewrap: any word); ``proxy`` is ``http://HOST:PORT``."""

    network: str = ""
    proxy: str = ""

    @classmethod
    def from_env(cls, env: environment.Env) -> EgressConfig:
        """``SANDBOX_EGRESS_NETWORK`` and ``SANDBOX_EGRESS_PROXY``. Raises ConfigurationError."""
        network, proxy = environment.text(env, NETWORK), environment.text(env, PROXY)
        if network and (not _NAME.fullmatch(network) or network.lower() in _RESERVED):
            raise ConfigurationError(
                f"{NETWORK}={network!r} cannot be used; write the name of a network that was made for this, such as "
                "foliobox-egress, or leave it empty for no egress.",
                setting=NETWORK,
            )
        return cls(network, _checked(proxy) if proxy else "")

    @property
    def wanted(self) -> bool:
        """Whether the operator asked for egress."""
        return bool(self.network)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the proxy; only where one is set."""
        parts = urlsplit(self.proxy)
        assert parts.hostname is not None
        return parts.hostname, parts.port or 80

    @property
    def label(self) -> str:
        """What a sandbox with network is marked with, to be known again under the same settings only."""
        return f"{self.network} {self.proxy}".strip()

    @property
    def unproven(self) -> Egress:
        """What is known before anything was tried, or once nobody answers any more."""
        return Egress(None, "not known yet: no sandbox can be started") if self.wanted else Egress()


def _checked(proxy: str) -> str:
    """A URL that names a proxy and nothing else. Its text is not repeated: it may hold a password."""
    try:
        parts = urlsplit(proxy)
        port = parts.port
    except ValueError:
        raise _refused("its port is no number from 1 to 65535") from None
    if not proxy.isascii() or not proxy.isprintable() or " " in proxy:
        raise _refused("it holds characters that no address has")
    if "@" in proxy or parts.username is not None or parts.password is not None:
        raise _refused("user information does not belong into it: every sandbox would be told it")
    if parts.scheme != "http":
        raise _refused("it has to begin with http://; what goes to a site through it can still be https")
    if port == 0 or not parts.hostname or not _HOST.fullmatch(parts.netloc.removesuffix(f":{port}")):
        raise _refused("it names no host")
    if parts.path not in ("", "/") or parts.query or parts.fragment or "?" in proxy or "#" in proxy:
        raise _refused("nothing may follow the port")
    return f"http://{parts.netloc}"


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{PROXY} cannot be used: {why}. Write http://HOST:PORT, such as http://egress:3128.", setting=PROXY
    )


def added_environment(proxy: str, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a sandbox with network: the proxy's variables, and where packages are put at run time."""
    told: dict[str, str] = dict(given)
    if proxy:
        told |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
        told |= dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1")
    told |= {"PIP_PREFIX": PACKAGES, "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return told | {"PATH": f"{told['PATH']}:{PACKAGES}/bin"}


async def answers(address: tuple[str, int], patience_s: float = 0.0) -> str:
    """Why nothing takes connections at an address, for ``patience_s``; empty when something does. Raises nothing."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while (why := await _answers(address)) and loop.time() < deadline:  # noqa: ASYNC110  (it is another's to tell us)
        await asyncio.sleep(_PAUSE_S)
    return why


async def _answers(address: tuple[str, int], limit_s: float = _ANSWER_S) -> str:
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(*address)
    except TimeoutError:
        return f"no answer within {limit_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return ""
