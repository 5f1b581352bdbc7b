"""Lists the commands and turns configuration errors into one readable line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from runner import __version__
from runner.cli.demo.command import demo
from runner.cli.doctor import doctor
from runner.cli.egress import egress
from runner.cli.keys import keys
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
app.add_typer(keys, name="keys")
app.add_typer(egress, name="egress")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"foliobox {__version__}")
        raise typer.Exit


@app.callback()
def foliobox(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """A sandbox runner and a document engine for chat gateways."""


def main() -> None:
    """Entry point."""
    try:
        app()
    except FolioboxError as error:
        sys.stderr.write(f"foliobox: {error.detail}\n")
        raise SystemExit(2) from None
