"""Every example of the documentation is run as it stands, and gives the answer that is printed below it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner import Runner

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```(bash|json|text)\n(.*?)```", re.DOTALL)


def examples(name: str) -> list[tuple[str, str, str]]:
    """Commands with the kind and text of the answer that follows them."""
    blocks: list[tuple[str, str]] = BLOCK.findall((ROOT / name).read_text(encoding="utf-8"))
    return [
        (text, *blocks[at + 1])
        for at, (kind, text) in enumerate(blocks[:-1])
        if kind == "bash" and blocks[at + 1][0] != "bash"
    ]


def check(expected: Any, got: Any, place: str = "") -> None:
    """``…`` stands for anything, in a string for any part of it; objects may have more fields than shown."""
    if isinstance(expected, dict):
        assert isinstance(got, dict), place
        for key, value in expected.items():
            assert key in got, f"{place}.{key}"
            check(value, got[key], f"{place}.{key}")
    elif isinstance(expected, list):
        assert isinstance(got, list), place
        if expected == ["…"]:
            return
        assert len(got) == len(expected), place
        for number, (one, other) in enumerate(zip(expected, got, strict=True)):
            check(one, other, f"{place}[{number}]")
    elif isinstance(expected, str) and "…" in expected:
        if expected != "…":
            assert matches(expected, str(got)), (place, got)
    else:
        assert got == expected, (place, got)


def matches(expected: str, got: str) -> bool:
    """Whether a text is the printed one, with anything where that has ``…``."""
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    return re.fullmatch(pattern, got, re.DOTALL) is not None


@pytest.mark.parametrize("page", ["docs/api.md", "docs/integrate.md", "docs/sessions.md"])
def test_examples_of_the_guides(runner: Runner, page: str) -> None:
    env = {"PATH": "/usr/bin:/bin", "URL": runner.url, "KEY": runner.key}
    found = examples(page)
    assert len(found) >= 6
    for command, kind, answer in found:
        done = subprocess.run(
            ["bash", "-ec", command], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
        if kind == "json":
            check(json.loads(answer), json.loads(done.stdout), command.split("\n")[0])
        else:
            assert matches(answer.strip(), done.stdout.strip()), (command, done.stdout)
    with runner.client() as http:
        for made in ("report-7", "report-7-again", "chat-7.a1", "chat-7.b2"):
            http.delete(f"/v1/conversations/{made}")


def test_every_route_is_in_a_guide(runner: Runner) -> None:
    guides = ("api", "tools", "sessions", "storage", "oneshot")
    text = "".join((ROOT / f"docs/{name}.md").read_text(encoding="utf-8") for name in guides)
    with runner.client() as http:
        paths = http.get("/openapi.json").json()["paths"]
    for path in paths:
        last = [part for part in path.split("/") if part and not part.startswith("{")][-1]
        assert last in text, path


def test_first_call_of_the_readme(runner: Runner) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"```\n(curl .*?)```", text, re.DOTALL)
    assert command is not None
    script = command[1].replace("http://127.0.0.1:8000", runner.url).replace("change-me", runner.key)
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, timeout=60, check=True)
    result = json.loads(done.stdout)
    assert (result["outcome"], result["stdout"], result["interpreter"]) == ("ok", "2.0\n", "new")
    with runner.client() as http:
        http.delete("/v1/conversations/demo")


@pytest.mark.parametrize(
    "page", sorted(str(p.relative_to(ROOT)) for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
)
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if target.startswith(("https://", "http://")):
            continue  # other people's pages, which no test looks up
        assert (ROOT / page).parent.joinpath(target).exists(), target
