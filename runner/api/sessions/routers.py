"""All routers of the sessions surface."""

from __future__ import annotations

from typing import Final

from runner.api.sessions import files, runs, storage

ROUTERS: Final = (runs.router, files.router, storage.router)
