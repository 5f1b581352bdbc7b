"""All routers of ``/v1`` that ask for a key. The order matters where one address could be another's path."""

from __future__ import annotations

from typing import Final

from runner.api.v1 import archive, bulk, conversations, executions, files, links, moves, versions

ROUTERS: Final = (
    conversations.router,
    executions.router,
    files.router,
    bulk.router,
    moves.router,
    archive.router,
    versions.router,
    links.router,
)
