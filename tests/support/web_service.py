"""Runs ``foliobox serve`` with a client whose network leads to servers of a test: the guard itself is the real one.

    python -m tests.support.web_service LAB.json python -P -m runner serve …

There is no setting for this on purpose: what is put in is an argument of ``create_app``, given by this program alone.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import replace
from pathlib import Path

from runner.cli import main as cli
from runner.cli import serve
from runner.egress.client import Client
from runner.egress.config import FetchConfig
from tests.support.web import LabNetwork


def main(lab: str, arguments: list[str]) -> None:
    """Serve, with the network that a file describes."""
    told = json.loads(Path(lab).read_text(encoding="utf-8"))
    config = replace(FetchConfig(enabled=True), **told.get("limits", {}))
    client = Client(config, LabNetwork(told["port"], told["canary"], told["names"]))
    serve.create_app = functools.partial(serve.create_app, client=client)  # type: ignore[attr-defined]
    sys.argv = ["foliobox", *arguments]
    cli.main()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[sys.argv.index("runner") + 1 :])
