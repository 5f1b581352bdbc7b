"""``foliobox doctor``: what this host offers, every setting with its source, and a real start of a sandbox."""

from __future__ import annotations

import asyncio
import os
import time

import typer
from rich.console import Console
from rich.table import Table

from runner import app as composition
from runner import preflight
from runner.backends.base import BackendReport
from runner.cli.settings_table import SECRET, SETTINGS
from runner.errors import FolioboxError
from runner.settings import Settings

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor() -> None:
    """Try everything that a start would need, and say what to change."""
    console = Console()
    console.print(_settings())
    findings = preflight.preflight(preflight.Host(target="serve"))
    console.print(_host(findings))
    good = all(finding.state != "fail" for finding in findings)
    try:
        settings = Settings.from_env(os.environ)
        settings.api.check()
        report, seconds = asyncio.run(_start(settings))
        console.print(_backend(report, seconds))
        composition.check_exposure(settings, report)
        good = good and report.available
    except FolioboxError as error:
        console.print(f"[red]A start would fail:[/] {error.detail}")
        good = False
    if good:
        console.print("[green]The service can start.[/]")
    else:
        raise typer.Exit(1)


def _settings() -> Table:
    table = Table(title="Settings", title_justify="left")
    for heading in ("name", "value", "source", "meaning"):
        table.add_column(heading, overflow="fold")
    for setting in SETTINGS:
        given = os.environ.get(setting.name)
        value = setting.default if given is None else ("(set)" if setting.name in SECRET else given)
        table.add_row(setting.name, value, "default" if given is None else "environment", setting.meaning)
    return table


def _host(findings: list[preflight.Finding]) -> Table:
    table = Table(title="Host", title_justify="left")
    for heading in ("what", "state", "found", "what to change"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        colour = _COLOURS[finding.state]
        table.add_row(finding.name, f"[{colour}]{finding.state}[/]", finding.found, finding.change)
    return table


async def _start(settings: Settings) -> tuple[BackendReport, float]:
    """Probe the backend, and bring one sandbox up and down again."""
    backend, report = await composition.choose_backend(settings)
    if not report.available:
        return report, 0.0
    began = time.perf_counter()
    client = await composition.start_one_sandbox(backend, settings)
    seconds = time.perf_counter() - began
    await client.destroy()
    return report, seconds


def _backend(report: BackendReport, seconds: float) -> Table:
    table = Table(title=f"Backend {report.name}", title_justify="left")
    for heading in ("what", "state", "detail"):
        table.add_column(heading, overflow="fold")
    table.add_row("available", "[green]yes[/]" if report.available else "[red]no[/]", report.detail)
    table.add_row("isolation", report.isolation, "")
    table.add_row("image", report.image or "none", "")
    for wall in report.walls:
        table.add_row(f"wall: {wall.name}", "[green]stands[/]" if wall.stands else "[red]missing[/]", wall.detail)
    if seconds:
        table.add_row("a sandbox came up", f"{seconds:.2f} s", "without a warm spare")
    return table
