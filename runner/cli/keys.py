"""``foliobox keys``: make, list and revoke keys of callers. A key is printed once and kept only as its hash."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer

from runner import environment
from runner.api import key_file, scopes
from runner.api.keys import NAME, RESERVED_TENANTS, Key, KeyLimits, hashed, new_secret
from runner.cli import key_store
from runner.errors import ConfigurationError

_DURATION: Final = re.compile(r"([1-9][0-9]{0,4})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_COLUMNS: Final = ("NAME", "TENANT", "SCOPES", "LIMITS", "CREATED", "EXPIRES")

keys = typer.Typer(no_args_is_help=True, help="Make, list and revoke keys of callers.")
File = Annotated[Path | None, typer.Option("--file", help="File of keys; default SANDBOX_API_KEYS_FILE.")]


@keys.command()
def new(
    name: Annotated[str, typer.Option(help="What the key is called in lists and logs.")],
    tenant: Annotated[str, typer.Option(help="Whose conversations it reaches.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help=f"May be repeated: {', '.join(scopes.SCOPES)}. Without it: read, write and run."),
    ] = None,
    expires_in: Annotated[str | None, typer.Option(help="90d, 12h, 30m or 4w; without it the key never ends.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Requests a minute.")] = None,
    concurrent: Annotated[int | None, typer.Option(min=1, help="Requests under way at a time.")] = None,
    sandboxes: Annotated[int | None, typer.Option(min=1, help="Live sandboxes of the whole tenant.")] = None,
    upload_bytes: Annotated[
        str | None, typer.Option(help="One uploaded file: bytes, or a number with k, m or g.")
    ] = None,
    file: File = None,
) -> None:
    """Make a key and print it, this once; the file keeps its hash."""
    path = _path(file)
    chosen = frozenset(scope) if scope else scopes.DEFAULT
    unknown = sorted(chosen - set(scopes.SCOPES))
    if unknown:
        raise ConfigurationError(f"--scope {unknown[0]}: there are {', '.join(scopes.SCOPES)}")
    for option, value in (("--name", name), ("--tenant", tenant)):
        if not NAME.fullmatch(value):
            raise ConfigurationError(f"{option} must be 1 to 64 of A-Za-z0-9._-, beginning with a letter or digit")
    if tenant in RESERVED_TENANTS:
        raise ConfigurationError(f"--tenant {tenant}: the runner keeps this name for itself")
    largest = environment.size({"--upload-bytes": upload_bytes or ""}, "--upload-bytes", 0) or None
    now = datetime.now(UTC).replace(microsecond=0)
    secret = new_secret()
    key = Key(
        name=name,
        tenant=tenant,
        sha256=hashed(secret.encode()),
        scopes=chosen,
        limits=KeyLimits(requests_per_minute, concurrent, sandboxes, largest),
        expires_at=None if expires_in is None else now + _duration(expires_in),
        created_at=now,
    )
    key_store.add(path, key)
    typer.echo(f"The key {name} is shown this once; {path} keeps its hash.", err=True)
    typer.echo(secret)


@keys.command(name="list")
def show(file: File = None) -> None:
    """List names, tenants, scopes, limits and ends; never a key or its hash."""
    now = datetime.now(UTC).timestamp()
    rows = [_COLUMNS, *(_row(key, now) for key in key_file.read(_path(file))[0])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@keys.command()
def revoke(name: Annotated[str, typer.Argument(help="Its name, as listed.")], file: File = None) -> None:
    """Remove a key; a running service refuses it within two seconds."""
    path = _path(file)
    key_store.remove(path, name)
    typer.echo(f"The key {name} is revoked.", err=True)


def _path(file: Path | None) -> Path:
    found = file or environment.folder(os.environ, key_file.SETTING)
    if found is None:
        raise ConfigurationError(f"no file of keys is named: give --file, or set {key_file.SETTING}")
    return found.absolute()


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ConfigurationError(
            "--expires-in must be a whole number, at least 1 and at most 99999, with m, h, d or w, such as 90d"
        )
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _row(key: Key, now: float) -> tuple[str, ...]:
    limits = {name: getattr(key.limits, name) for name in KeyLimits.__dataclass_fields__}
    end = "never" if key.expires_at is None else f"{key.expires_at:%Y-%m-%d %H:%M}Z"
    return (
        key.name,
        key.tenant,
        ",".join(scope for scope in scopes.SCOPES if scope in key.scopes),
        ",".join(f"{name}={limit}" for name, limit in limits.items() if limit is not None) or "-",
        "-" if key.created_at is None else f"{key.created_at:%Y-%m-%d}",
        f"{end} (expired)" if key.expired(now) else end,
    )
