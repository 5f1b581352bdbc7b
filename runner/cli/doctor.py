"""``foliobox doctor``: what this host offers, the settings in effect, and a real start of a sandbox."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Iterable
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from runner import app as composition
from runner import preflight
from runner.api.keyring import Keyring
from runner.backends.base import BackendReport
from runner.backends.egress import Egress
from runner.cli import doctor_checks as checks
from runner.errors import FolioboxError
from runner.settings import Settings

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
_UNBOUNDED = 2000  # what is piped is for programs, and is not wrapped
Row = tuple[str, ...]


def doctor(
    everything: Annotated[bool, typer.Option("--all", help="Show settings at their default too.")] = False,
) -> None:
    """Try everything that a start would need, and say what to change."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    console = Console(highlight=False, width=_UNBOUNDED if piped else None)
    settings, problems = checks.read_settings(os.environ)
    _show_settings(console, settings, everything)
    findings = preflight.preflight(preflight.Host(target="serve"))
    console.print(_table("Host", map(_host_row, findings)))
    problems += [f"{item.name}: {item.found}; {item.change}" for item in findings if item.state == "fail"]
    if settings is not None:
        problems += checks.start(settings)
        keyring, unusable = checks.keyring(settings.api)
        problems += unusable + checks.data_folder(settings.workspace.data_dir)
        problems += _try_sandbox(console, settings, keyring)
    if not problems:
        console.print("[green]The service can start.[/]")
        return
    console.print("[red]A start would fail, or not serve:[/]")
    for problem in problems:
        console.print(_bullet(problem))
    raise typer.Exit(1)


def _try_sandbox(console: Console, settings: Settings, keyring: Keyring | None) -> list[str]:
    """Probe the backend and start a sandbox; show both, and return what went wrong."""
    try:
        report, seconds, others = asyncio.run(_start(settings))
        console.print(_table(f"Backend {report.name}", _backend_rows(report, seconds)))
        for other in others:
            console.print(_table(f"Not used: {other.name}", _backend_rows(other, 0.0)))
        problems = [] if report.available else [f"no sandbox can be started: {report.detail}"]
    except FolioboxError as error:
        return [checks.plain(error)]
    for text in composition.advice(settings, report.name):
        console.print(f"[yellow]{escape(text)}[/]")
    for check in (
        partial(composition.check_isolation, settings, report),
        partial(composition.check_exposure, settings, report, keyring),
    ):
        try:
            check()
        except FolioboxError as error:
            problems.append(checks.plain(error))
    return problems


async def _start(settings: Settings) -> tuple[BackendReport, float, list[BackendReport]]:
    """Probe the backend, and bring one sandbox up and down again; probe the others too."""
    backend, report = await composition.choose_backend(settings)
    others = await composition.other_backends(settings, report.name)
    if not report.available:
        return report, 0.0, others
    began = time.perf_counter()
    client = await composition.start_one_sandbox(backend, settings)
    seconds = time.perf_counter() - began
    await client.destroy()
    return report, seconds, others


def _show_settings(console: Console, settings: Settings | None, everything: bool) -> None:
    rows = checks.settings_rows(os.environ, settings, everything)
    if rows:
        shown = (
            (name, f"{escape(value)} [dim]({source})[/]\n[dim]{escape(why)}[/]") for name, value, source, why in rows
        )
        console.print(_table("Settings", shown))
    if not everything:
        others = "The other settings have their defaults" if rows else "All settings have their defaults"
        console.print(f"{others}; --all shows them.\n")


def _table(title: str, rows: Iterable[Row]) -> Table:
    """A table without lines that is readable at 80 columns: the last column folds, the others stay whole."""
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    cells = list(rows)
    for number in range(len(cells[0])):
        last = number == len(cells[0]) - 1
        table.add_column(overflow="fold", no_wrap=not last)
    for row in cells:
        table.add_row(*row)
    return table


def _bullet(text: str) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_row("-", escape(text))
    return table


def _host_row(finding: preflight.Finding) -> Row:
    colour = _COLOURS[finding.state]
    change = f"\n[dim]-> {escape(finding.change)}[/]" if finding.change else ""
    return f"[{colour}]{finding.state}[/]", escape(finding.name), escape(finding.found) + change


def _backend_rows(report: BackendReport, seconds: float) -> list[Row]:
    available = "[green]yes[/]" if report.available else "[red]no[/]"
    rows: list[Row] = [
        ("available", f"{available} {escape(report.detail)}"),
        ("isolation", escape(report.isolation)),
        ("image", escape(report.image or "none")),
    ]
    if report.engine:
        rows.insert(1, ("runtime", escape(f"{report.runtime or 'none'} of Docker {report.engine}")))
    if report.network != Egress():
        state = {True: "[green]yes[/]", False: "[yellow]no[/]", None: "[yellow]unknown[/]"}[report.egress]
        colour = "red" if report.network.open else "dim"
        rows.append(("egress", f"{state} [{colour}]{escape(report.egress_detail)}[/]"))
    for wall in report.walls:
        state = "[green]stands[/]" if wall.stands else "[red]missing[/]"
        rows.append((f"wall: {escape(wall.name)}", f"{state} {escape(wall.detail)}"))
    if seconds:
        rows.append(("a sandbox came up", f"{seconds:.2f} s, without a warm spare"))
    return rows
