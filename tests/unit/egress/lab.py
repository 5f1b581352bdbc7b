"""A client, a server that does what a hostile one would, and a canary that counts what gets past."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from runner.egress.client import Client, Fetched
from runner.egress.config import FetchConfig
from runner.errors import FolioboxError
from tests.support.web import PUBLIC, PUBLIC6, SITE, LabNetwork, Web

QUICK = replace(FetchConfig(enabled=True), connect_s=2.0, silence_s=2.0, total_s=4.0)
NAMES: dict[str, list[list[str]]] = {
    SITE: [[PUBLIC]],
    "both.example": [[PUBLIC6, PUBLIC]],
    "mixed.example": [[PUBLIC, "10.0.0.1"]],
    "inside.example": [["127.0.0.1"]],
    "inside6.example": [["::ffff:127.0.0.1"]],
    "metadata.example": [["169.254.169.254"]],
    "nat64.example": [["64:ff9b::7f00:1"]],
    "rebinding.example": [[PUBLIC], ["127.0.0.1"]],
    "nothing.example": [[]],
}


@dataclass
class Kept:
    """Keeps what is fetched."""

    content: bytearray = field(default_factory=bytearray)

    async def write(self, chunk: bytes) -> None:
        """One more piece."""
        self.content += chunk


class Lab:
    """A server, a canary and the network that leads to them."""

    def __init__(self, web: Web, canary: Web) -> None:
        self.web, self.canary = web, canary
        self.network = self.new_network()

    def new_network(self, names: Mapping[str, Sequence[Sequence[str]]] = NAMES) -> LabNetwork:
        """Names as if nobody had asked yet."""
        self.network = LabNetwork(self.web.port, self.canary.port, names)
        return self.network

    async def fetch(
        self, url: str, limit: int = 1 << 20, config: FetchConfig = QUICK, tls: ssl.SSLContext | None = None
    ) -> tuple[bytes, Fetched]:
        """What is there."""
        kept = Kept()
        found = await Client(config, self.network, tls=tls).fetch(url, kept, limit)
        return bytes(kept.content), found

    async def unguarded(self, url: str) -> None:
        """The control: the same client, with a judge that allows everything."""
        with contextlib.suppress(FolioboxError):
            await Client(replace(QUICK, connect_s=0.3), self.network, judge=lambda address: None).fetch(
                url, Kept(), 1 << 20
            )
