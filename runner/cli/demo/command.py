"""The demo itself: drives a service over HTTP as a gateway would, kills it half-way, and shows what came out."""

from __future__ import annotations

import json
import re
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from runner.cli.demo.scenario import CRASH_AFTER, EXPECTED, HERE, INPUTS, STEPS, Step
from runner.cli.local_service import LocalService, ServiceFailed, inherited_env

CONVERSATION, CHECKS = "demo", "demo-checks"


class DemoFailed(Exception):
    """Something did not come out as it must; the text says what."""


@dataclass
class Made:
    """A finished file."""

    name: str
    size: int
    ms: int
    pages: int | None = None
    problems: list[str] = field(default_factory=list)


@dataclass
class Demo:
    """One run of the demo against a service of its own."""

    service: LocalService
    output: Path
    progress: Progress
    made: dict[str, Made] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def go(self) -> None:
        """Everything, in order. Raises DemoFailed or ServiceFailed."""
        task = self.progress.add_task("Starting the service", total=len(STEPS) + 4)
        self._begin(task, "Starting the service")
        self.service.start()
        http = self.service.client()
        health = http.get("/healthz").json()
        if not health["ok"]:
            raise DemoFailed(f"no sandbox can be started: {health['detail']}")
        missing = [name for name, stands in health["walls"].items() if not stands]
        walls = f"walls missing: {', '.join(missing)}" if missing else "all walls stand"
        self.notes.append(f"Backend {health['backend']}, isolation {health['isolation']}, {walls}.")
        self._begin(task, "Uploading four files")
        self._upload(http)
        for step in STEPS:
            self._begin(task, step.title)
            self._run(http, step)
            if step.cell == CRASH_AFTER:
                self._begin(task, "Killing the service (SIGKILL) and starting it again")
                http.close()
                http = self._crash()
        self._begin(task, "Opening every file with another library, and as pictures")
        self._check(http)
        http.close()
        self.progress.update(task, description="Done", completed=len(STEPS) + 4)

    def _begin(self, task: Any, title: str) -> None:
        self.progress.update(task, description=title)
        self.progress.advance(task)
        if not self.progress.console.is_terminal:
            self.progress.console.print(f"  {title} …")

    def _upload(self, http: httpx.Client) -> None:
        for name in INPUTS:
            content = (HERE / "inputs" / name).read_bytes()
            http.put(f"/v1/conversations/{CONVERSATION}/files/uploads/{name}", content=content).raise_for_status()

    def _execute(self, http: httpx.Client, conversation: str, code: str) -> dict[str, Any]:
        answer = http.post(f"/v1/conversations/{conversation}/execute", json={"code": code})
        result: dict[str, Any] = answer.json()
        if answer.status_code != 200:
            raise DemoFailed(f"HTTP {answer.status_code}: {result.get('detail')}")
        if result["outcome"] != "ok":
            error = (result["error"] or {}).get("traceback", "")
            raise DemoFailed(f"a cell ended as {result['outcome']}\n{error}{result['stderr'][-2000:]}")
        return result

    def _run(self, http: httpx.Client, step: Step) -> None:
        began = time.perf_counter()
        result = self._execute(http, CONVERSATION, step.code)
        ms = round((time.perf_counter() - began) * 1000)
        stored = {entry["path"]: entry for entry in result["files"]}
        for name in step.files:
            entry = stored.get(f"outputs/{name}")
            if entry is None:
                raise DemoFailed(f"{step.cell} did not make outputs/{name}, only {sorted(stored)}")
            content = http.get(f"/v1/conversations/{CONVERSATION}/files/outputs/{name}").raise_for_status().content
            (self.output / name).write_bytes(content)
            self.made[name] = Made(name, len(content), ms)
        if result["stderr"]:
            self.notes.append(f"{step.cell} wrote to standard error: {result['stderr'].strip()[:300]}")

    def _crash(self) -> httpx.Client:
        began = time.perf_counter()
        self.service.kill()
        self.service.start()
        http = self.service.client()
        ms = round((time.perf_counter() - began) * 1000)
        listing = http.get(f"/v1/conversations/{CONVERSATION}/files").raise_for_status().json()["files"]
        stored = {entry["path"] for entry in listing}
        lost = {f"outputs/{name}" for name in self.made} | {f"uploads/{name}" for name in INPUTS}
        if lost - stored:
            raise DemoFailed(f"lost by the crash: {sorted(lost - stored)}")
        self.notes.append(f"The service was killed after the report and was back after {ms} ms with all files.")
        return http

    def _check(self, http: httpx.Client) -> None:
        for name in INPUTS:
            content = (HERE / "inputs" / name).read_bytes()
            http.put(f"/v1/conversations/{CHECKS}/files/uploads/{name}", content=content).raise_for_status()
        for want in EXPECTED:
            content = (self.output / want.name).read_bytes()
            path = f"/v1/conversations/{CHECKS}/files/uploads/made/{want.name}"
            http.put(path, content=content).raise_for_status()
        code = f"import json\nexpected = json.loads({json.dumps(json.dumps([asdict(e) for e in EXPECTED]))})\n"
        result = self._execute(http, CHECKS, code + (HERE / "opening.py").read_text(encoding="utf-8"))
        for line in result["stdout"].splitlines():
            seen = json.loads(line)
            self.made[seen["name"]].pages = seen["pages"]
            self.made[seen["name"]].problems = seen["problems"]
        pictures = [entry["path"] for entry in result["files"] if entry["path"].startswith("outputs/pages/")]
        (self.output / "pages").mkdir(exist_ok=True)
        for path in pictures:
            content = http.get(f"/v1/conversations/{CHECKS}/files/{path}").raise_for_status().content
            (self.output / "pages" / Path(path).name).write_bytes(content)

    def table(self) -> Table:
        """What was made, a row a file."""
        table = Table(title="Made in one conversation", title_justify="left")
        for heading in ("file", "pages", "size", "ms", "opened and looked at"):
            table.add_column(heading, justify="left" if heading[0] in "fo" else "right")
        for item in self.made.values():
            verdict = "[green]ok[/]" if not item.problems else "[red]" + escape("; ".join(item.problems)) + "[/]"
            if item.name not in {want.name for want in EXPECTED}:
                verdict = "data"
            table.add_row(item.name, str(item.pages or ""), f"{item.size:,}", str(item.ms), verdict)
        return table


def remove_pictures(folder: Path) -> None:
    """Delete page pictures of an earlier run; files of other names stay."""
    names = "|".join(re.escape(want.name) for want in EXPECTED)
    for path in folder.glob("*.png"):
        if re.fullmatch(rf"({names})-[0-9]+\.png", path.name):
            path.unlink()


def demo(
    output: Annotated[Path, typer.Option(help="Folder for the files and page pictures.")] = Path("demo-output"),
) -> None:
    """Turn real input into a PDF, decks, a Word file and a workbook in one conversation, with a crash in between."""
    console = Console()
    output.mkdir(parents=True, exist_ok=True)
    remove_pictures(output / "pages")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with (
        tempfile.TemporaryDirectory(prefix="foliobox-demo-") as data,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        work = Demo(LocalService(Path(data), inherited_env()), output, progress)
        try:
            work.go()
        except (DemoFailed, ServiceFailed, httpx.HTTPError) as error:
            console.print(f"[red]The demo failed:[/] {escape(str(error))}")
            raise typer.Exit(1) from None
        finally:
            if work.service.process is not None:
                work.service.stop()
    console.print(work.table())
    for note in work.notes:
        console.print(escape(note), highlight=False)
    console.print(f"Files and page pictures are in {escape(str(output))}/.", highlight=False)
    if any(item.problems for item in work.made.values()):
        raise typer.Exit(1)
