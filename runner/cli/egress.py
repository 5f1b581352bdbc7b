"""``foliobox egress check``: what sandboxes of this deployment can really reach, tried from within them."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from typing import Annotated, Final

import typer

from runner import app as composition
from runner.backends.base import Backend
from runner.cli.egress_attempts import CODE, Attempt, Row, judge, plan
from runner.errors import EgressUnavailable, FolioboxError
from runner.interpreter.client import Event
from runner.model import RunRequest
from runner.settings import Settings

_LIMIT_MS: Final = 300_000
_PUBLIC: Final = "1.1.1.1"  # any public address will do: nothing may arrive there
_PRIVATE: Final = ("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "[fd00:ec2::254]")
_COLUMNS: Final = ("", "ATTEMPT", "TARGET", "MUST BE", "SEEN", "DETAIL")

egress = typer.Typer(no_args_is_help=True, help="The network that sandboxes may be given.")


@egress.callback()
def _egress() -> None:
    """The network that sandboxes may be given."""


@egress.command()
def check(
    allowed: Annotated[list[str], typer.Option(help="HOST[:PORT] on the list of the proxy; may be repeated.")],
    denied: Annotated[
        list[str] | None, typer.Option(help="HOST[:PORT] that is not on it. Default: example.com.")
    ] = None,
    private: Annotated[
        list[str] | None,
        typer.Option(help="ADDRESS[:PORT] inside. Default: one of each range, and where clouds keep their metadata."),
    ] = None,
    direct: Annotated[
        list[str] | None, typer.Option(help="ADDRESS:PORT tried past the proxy. Default: a public one, and metadata.")
    ] = None,
    resolver: Annotated[list[str] | None, typer.Option(help="ADDRESS of a name server. Default: a public one.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Try hosts, addresses, direct access and DNS from sandboxes with and without network.

    Ends with 1 when something is not as it must be, and before any sandbox is started with 2 for what cannot be tried.
    """
    try:
        attempts = plan(
            allowed,
            denied or ["example.com"],
            private or list(_PRIVATE),
            direct or [f"{_PUBLIC}:443", f"{_PUBLIC}:80", "169.254.169.254:80"],
            resolver or [_PUBLIC],
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    detail, rows = asyncio.run(_tried(Settings.from_env(os.environ), attempts))
    right = all(row.right for row in rows)
    if as_json:
        sys.stdout.write(
            json.dumps({"ok": right, "egress_detail": detail, "attempts": [r.json() for r in rows]}) + "\n"
        )
    else:
        sys.stdout.write(
            f"{detail}\n\n{_table(rows)}\n\n{'All is as it must be.' if right else 'NOT as it must be.'}\n"
        )
    if not right:
        raise typer.Exit(1)


async def _tried(settings: Settings, attempts: list[Attempt]) -> tuple[str, list[Row]]:
    """Raises EgressUnavailable, BackendUnavailable."""
    backend, report = await composition.choose_backend(settings)
    if not report.available or not report.egress:
        raise EgressUnavailable(
            f"no sandbox has network here: {report.egress_detail if report.available else report.detail}"
        )
    with_network = [one for one in attempts if one.network]
    without = [one for one in attempts if not one.network]
    rows = [row for some in (with_network, without) for row in await _from_sandbox(backend, settings, some)]
    return report.egress_detail, rows


async def _from_sandbox(backend: Backend, settings: Settings, attempts: list[Attempt]) -> list[Row]:
    client = await composition.start_one_sandbox(backend, settings, network=attempts[0].network)
    said = b""
    try:
        given = json.dumps([(one.way, one.target) for one in attempts]).encode()
        request = RunRequest(CODE, timeout_ms=_LIMIT_MS, stdin=given)
        async for item in client.run(secrets.token_hex(16), request):
            if isinstance(item, Event) and item.kind == "stdout":
                said += item.body["text"].encode()
    finally:
        await client.destroy()
    try:
        return judge(attempts, said.decode("utf-8", "replace"))
    except ValueError as error:
        raise FolioboxError(f"the attempts could not be made: {error}") from None


def _table(rows: list[Row]) -> str:
    cells = [_COLUMNS, *(("ok" if r.right else "WRONG", r.name, r.target, r.must_be, r.seen, r.detail) for r in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(_COLUMNS) - 1)]
    return "\n".join(
        "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1])).rstrip()
        for row in cells
    )
