"""Lists the commands and turns configuration errors into one readable line."""

from __future__ import annotations

import sys

import typer

from runner.cli.demo.command import demo
from runner.cli.doctor import doctor
from runner.cli.serve import serve
from runner.errors import FolioboxError

app = typer.Typer(
    name="foliobox",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A sandbox runner and a document engine for chat gateways.",
)
app.command()(serve)
app.command()(demo)
app.command()(doctor)


@app.callback()
def foliobox() -> None:
    """A sandbox runner and a document engine for chat gateways."""


def main() -> None:
    """Entry point."""
    try:
        app()
    except FolioboxError as error:
        sys.stderr.write(f"foliobox: {error.detail}\n")
        raise SystemExit(2) from None
