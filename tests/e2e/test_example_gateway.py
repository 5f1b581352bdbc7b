"""The example gateway against a real service: a chat from its first upload to its deletion, also when it is cut off."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from examples.client import Foliobox, Problem
from examples.gateway import Branch, Gateway
from runner.cli.main import app
from tests.support import events
from tests.support.cutting import relay
from tests.support.runner import Chat, Runner, running
from tests.support.waiting import aside, until

ROOT = Path(__file__).parents[2]
Seen = list[tuple[str, Mapping[str, Any]]]


@contextlib.contextmanager
def at(url: str, key: str, patience_s: float = 60, *, skill_inline: bool = True) -> Iterator[Gateway]:
    """A gateway for the length of a block."""
    box = Foliobox(url, key, patience_s)
    with contextlib.closing(box):
        yield Gateway(box, skill_inline=skill_inline)


@pytest.fixture
def gateway(runner: Runner) -> Iterator[Gateway]:
    """One that has started."""
    with at(runner.url, runner.key) as made:
        made.start()
        yield made


@pytest.fixture
def branch(gateway: Gateway) -> Iterator[Branch]:
    """A new chat, deleted afterwards."""
    made = gateway.open(f"g-{secrets.token_hex(4)}")
    yield made
    gateway.delete(made.chat)


def files(http: httpx.Client, branch: Branch) -> dict[str, str]:
    """What the runner has, by the hash of each."""
    answer = http.get(f"/v1/conversations/{branch.conversation}/files").json()
    return {one["path"]: one["sha256"] for one in answer["files"]}


def test_it_runs_as_it_stands(runner: Runner) -> None:
    env = {"PATH": os.environ["PATH"], "FOLIOBOX_URL": runner.url, "FOLIOBOX_KEY": runner.key}
    command = [sys.executable, "-m", "examples.gateway"]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "- s.png (image/png, outputs/s.png)" in done.stdout
    assert "stdout:\n42\n" in done.stdout
    with runner.client() as http:
        assert not [c for c in http.get("/v1/conversations").json()["conversations"] if c["id"].startswith("demo-")]


def test_originals_arrive_unconverted_and_only_once(
    gateway: Gateway, branch: Branch, http: httpx.Client, runner: Runner
) -> None:
    sheet, picture = os.urandom(3000), os.urandom(2000)
    assert gateway.attach(branch, "C:\\temp\\Größe 表.xlsx", sheet) == "uploads/Größe 表.xlsx"
    assert gateway.attach(branch, "Größe 表.xlsx", b"other") == "uploads/Größe 表-2.xlsx"
    assert gateway.generated(branch, "cat.png", picture) == "uploads/generated-cat.png"
    gateway.ask(branch, "What is there?")
    for path in branch.originals:
        assert path in gateway.prompt(branch)
    said = gateway.python(branch, "1", "import os\nprint(sorted(os.listdir('uploads')))")
    assert "'generated-cat.png'" in said
    answer = http.get(f"/v1/conversations/{branch.conversation}/files/uploads/generated-cat.png")
    assert answer.content == picture
    with relay(runner.port) as wire, at(wire.url, runner.key) as there:
        there.python(branch, "2", "1")
        assert not [line for line in wire.requests if line.startswith(b"PUT")]  # all is there: nothing is sent
        gateway.attach(branch, "copy.xlsx", sheet)  # known by its hash: no bytes
        there.python(branch, "3", "1")
        assert [line for line in wire.requests if line.startswith(b"PUT")] == [
            b"PUT /v1/conversations/%b/files/uploads/copy.xlsx?sha256=%b HTTP/1.1"
            % (branch.conversation.encode(), files(http, branch)["uploads/copy.xlsx"].encode())
        ]
    del branch.originals["uploads/generated-cat.png"]  # the user removed it from the chat
    gateway.python(branch, "4", "1")
    assert "uploads/generated-cat.png" not in files(http, branch)


def test_a_document_of_the_canvas_goes_in_and_its_next_version_comes_out(gateway: Gateway, branch: Branch) -> None:
    path = gateway.document(branch, "Plan", "# Plan\n")
    gateway.ask(branch, "Add a line")
    gateway.python(branch, "1", f"open({path!r}, 'a').write('done\\n')")
    assert branch.originals[path] == b"# Plan\ndone\n"
    gateway.document(branch, "Plan", "# New plan\n")  # the user edited it on the canvas
    assert "# New plan" in gateway.python(branch, "2", f"print(open({path!r}).read())")


def test_artifacts_are_found_by_name_and_the_newest_wins(gateway: Gateway, branch: Branch, http: httpx.Client) -> None:
    gateway.ask(branch, "Make it")
    said = gateway.python(
        branch, "1", "open('outputs/report.txt', 'w').write('one')\nopen('scratch.txt', 'w').write('x')"
    )
    assert "- report.txt (text/plain, outputs/report.txt)" in said
    assert "rest.txt" not in said
    first = gateway.artifact(branch, "report.txt")
    gateway.python(branch, "2", "open('outputs/report.txt', 'w').write('two')")
    assert gateway.download(branch, "report.txt") == b"two"
    open_to_all = httpx.get(f"{http.base_url}".rstrip("/") + gateway.link(branch, "report.txt"))
    assert (open_to_all.status_code, open_to_all.text) == (200, "two")
    branch.artifacts.append(first)  # shown further up in the chat: that version's bytes
    assert gateway.download(branch, "report.txt") == b"one"
    with pytest.raises(KeyError):
        gateway.artifact(branch, "other.txt")


def test_an_edit_is_a_fork_and_the_first_branch_stays(gateway: Gateway, branch: Branch) -> None:
    gateway.attach(branch, "a.txt", b"from the user")
    gateway.ask(branch, "First")
    path = gateway.document(branch, "Plan", "v1")
    gateway.python(branch, "1", "open('outputs/first.txt', 'w').write('1')")
    gateway.ask(branch, "Second")
    gateway.python(branch, "1", f"open('outputs/second.txt', 'w').write('2')\nopen({path!r}, 'w').write('v2')\nx = 1")
    other = gateway.edit(branch, 1, "Second, otherwise")
    said = gateway.python(
        other, "1", "import os\nprint(sorted(os.listdir('outputs')), open('uploads/a.txt').read())\nx"
    )
    assert "['first.txt'] from the user" in said
    assert "NameError" in said  # variables do not come along
    assert "v1" in gateway.python(other, "2", f"print(open({path!r}).read())")
    assert gateway.download(other, "first.txt") == b"1"
    assert gateway.download(branch, "second.txt") == b"2"
    assert "v2" in gateway.python(branch, "2", f"print(open({path!r}).read(), x)")


def test_delete_takes_every_branch_and_may_be_repeated(gateway: Gateway, http: httpx.Client) -> None:
    branch = gateway.open(f"g-{secrets.token_hex(4)}")
    gateway.ask(branch, "First")
    other = gateway.edit(branch, 0, "Otherwise")
    gateway.delete(branch.chat)
    gateway.delete(branch.chat)
    for one in (branch, other):
        assert http.get(f"/v1/conversations/{one.conversation}").status_code == 404


def test_the_model_is_told_how_a_run_ended(gateway: Gateway, branch: Branch) -> None:
    gateway.ask(branch, "Fail")
    said = gateway.python(branch, "1", "import sys\nprint('a')\nprint('b', file=sys.stderr)\n1 / 0")
    for part in ("The run ended with: error", "stdout:\na\n", "stderr:\nb\n", "ZeroDivisionError: division by zero"):
        assert part in said
    assert "All variables are gone" in gateway.python(branch, "2", "import os; os._exit(3)")
    assert gateway.python(branch, "3", "x = 1") == "All variables are gone; files are still there."
    assert gateway.python(branch, "4", "y = 1") == "(no output)"


def test_stop_ends_the_run_and_keeps_variables(gateway: Gateway, branch: Branch) -> None:
    gateway.ask(branch, "Wait")
    seen: Seen = []
    code = "x = 7\nprint('on', flush=True)\nimport time; time.sleep(100)"
    waiting = aside(lambda: gateway.python(branch, "1", code, lambda name, event: seen.append((name, event))))
    until(lambda: any(name == "stdout" for name, _ in seen), "the run goes on")
    assert gateway.cancel(branch)
    assert "The run ended with: interrupted" in waiting.result(30)
    assert "7" in gateway.python(branch, "2", "print(x)")


def test_a_call_without_a_chat_leaves_nothing(gateway: Gateway, http: httpx.Client) -> None:
    code = "open('outputs/up.txt', 'w').write(open('uploads/in.txt').read().upper())"
    result, made = gateway.once(code, {"in.txt": b"text"})
    assert (result["outcome"], made) == ("ok", {"up.txt": b"TEXT"})
    assert http.get("/v1/conversations", params={"label": "purpose=once"}).json()["conversations"] == []
    http.put("/v1/conversations/once.left", json={"labels": {"purpose": "once"}})  # of a gateway that died in between
    gateway.start()
    assert http.get("/v1/conversations/once.left").status_code == 404


def test_the_skill_is_inline_or_a_file(runner: Runner, gateway: Gateway, branch: Branch) -> None:
    gateway.ask(branch, "Make a PDF")
    assert "WeasyPrint" in gateway.prompt(branch)
    with at(runner.url, runner.key, skill_inline=False) as short:
        assert "WeasyPrint" not in short.prompt(branch)
        assert "WeasyPrint" in short.python(branch, "1", "print(open('skills/documents.md').read())")


@pytest.mark.parametrize(
    ("cuts", "marker"),
    [
        ([b"event: started"], "at its beginning"),
        ([b"one", b"two"], "twice in the middle"),
        ([b"event: done"], "after its last event"),
        ([b"HTTP/1.1 200"], "at the head of the answer"),
    ],
)
def test_a_cut_stream_is_taken_up_again_and_the_run_runs_once(
    runner: Runner, gateway: Gateway, branch: Branch, cuts: list[bytes], marker: str
) -> None:
    gateway.ask(branch, marker)
    seen: Seen = []
    code = "import time\nfor word in ('one', 'two', 'three'):\n    print(word, flush=True)\n    time.sleep(0.2)\n"
    code += "open('runs.txt', 'a').write('x');"
    with relay(runner.port) as wire, at(wire.url, runner.key) as there:
        there.python(branch, "0", "0")  # what is before the run is not what is cut
        wire.cuts = list(cuts)
        body, key = {"code": code}, f"cut-{marker.replace(' ', '-')}"
        result = there.box.run(branch.conversation, body, key, lambda name, event: seen.append((name, event)))
        assert wire.done == len(cuts)
    assert (result["outcome"], result["stdout"]) == ("ok", "one\ntwo\nthree\n")
    assert [event["seq"] for _, event in seen] == list(range(1, len(seen) + 1))
    assert "".join(event["text"] for name, event in seen if name == "stdout") == "one\ntwo\nthree\n"
    assert gateway.python(branch, "n", "print(open('runs.txt').read())") == "stdout:\nx\n"


def test_an_answer_that_was_lost_is_asked_for_again(runner: Runner, gateway: Gateway, branch: Branch) -> None:
    gateway.ask(branch, "First")
    with relay(runner.port) as wire, at(wire.url, runner.key) as there:
        wire.cuts = [b"HTTP/1.1 201"]  # the fork was made, and nobody heard of it
        other = there.edit(branch, 0, "Otherwise")
        assert wire.done == 1
        assert gateway.python(other, "1", "1 + 1").startswith("2")
        wire.cuts = [b"HTTP/1.1"]
        with pytest.raises(httpx.TransportError):
            there.box.call("POST", f"/v1/conversations/{other.conversation}/reset", repeat=False)


def test_a_refusal_of_the_moment_is_waited_for(tmp_path: Path) -> None:
    settings = {"SANDBOX_QUEUE_TIMEOUT_SECONDS": "1", "SANDBOX_POOL_SIZE": "0"}
    with running(tmp_path, **settings) as service, service.client() as http, contextlib.ExitStack() as stack:
        gateway, hasty = (stack.enter_context(at(service.url, service.key, patience)) for patience in (60, 0.1))
        branch = gateway.open("busy")
        gateway.ask(branch, "Wait")
        chat = Chat(http, branch.conversation)
        held = events.begin(chat, "import time; time.sleep(100)")
        with pytest.raises(Problem) as refused:
            hasty.python(branch, "0", "1")
        assert refused.value.code == "busy"
        waiting = aside(lambda: gateway.python(branch, "1", "6 * 7"))
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 1.5 or waiting.done(), "it was refused once, at least")
        events.interrupt(chat, held)
        assert waiting.result(60) == "42"


def test_a_rate_limit_is_obeyed(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "keys.json"
    limited = ["--tenant", "default", "--requests-per-minute", "60"]
    made = CliRunner().invoke(app, ["keys", "new", "--name", "gateway", *limited, "--file", str(file)])
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    settings = {"SANDBOX_POOL_SIZE": "0", "SANDBOX_API_KEYS_FILE": str(file)}
    with running(tmp_path / "data", **settings) as service, at(service.url, key) as gateway:
        headers = {"Authorization": f"Bearer {key}"}
        until(lambda: httpx.get(f"{service.url}/v1/conversations", headers=headers).status_code == 429, "the limit")
        branch = gateway.open("limited")  # waits as long as it is told to
        gateway.ask(branch, "More")
        assert gateway.python(branch, "1", "1 + 1") == "2"


def test_a_restart_is_waited_for(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        service = stack.enter_context(running(tmp_path, SANDBOX_POOL_SIZE="0"))
        wire = stack.enter_context(relay(service.port))
        gateway = stack.enter_context(at(wire.url, service.key))
        branch = gateway.open("restarted")
        gateway.attach(branch, "a.txt", b"kept")
        gateway.ask(branch, "Go on")
        gateway.python(branch, "1", "x = 1")
        service.stop()
        asked = aside(lambda: gateway.python(branch, "2", "print(open('uploads/a.txt').read())"))
        until(lambda: wire.refused > 1, "it tries again and again")
        assert not asked.done()
        service.start()
        wire.target = service.port
        assert "kept" in asked.result(60)


def test_what_cannot_be_repeated_into_success_is_told_at_once(gateway: Gateway, branch: Branch) -> None:
    with pytest.raises(Problem) as refused:
        gateway.box.call("GET", f"/v1/conversations/{branch.conversation}/files/none.txt")
    assert (refused.value.status, refused.value.code) == (404, "not_found")
    with pytest.raises(Problem) as refused:
        gateway.box.run(branch.conversation, {"code": "1", "env": {"LD_X": "1"}}, "k", lambda name, event: None)
    assert refused.value.status == 422


def test_every_tool_of_the_catalogue_can_be_called(gateway: Gateway, branch: Branch) -> None:
    gateway.attach(branch, "a.txt", b"text")
    gateway.ask(branch, "Use your tools")
    offered = {tool["function"]["name"] for tool in gateway.tools}
    assert {"python_execute", "run_in_sandbox"} <= offered
    made = gateway.call(branch, "1", "python_execute", {"code": "open('outputs/b.txt', 'w').write('b');"})
    assert "- b.txt" in made
    assert "a.txt" in gateway.call(branch, "2", "list_attachments", {})
    assert "error" in gateway.call(branch, "3", "list_attachments", {"no": "such"})
    assert "error" in gateway.call(branch, "4", "no_such_tool", {})
    gateway.call(branch, "5", "zip_attachments", {"paths": ["uploads/a.txt", "outputs/b.txt"]})
    assert gateway.download(branch, "attachments.zip")[:2] == b"PK"


def test_what_the_probe_offers(runner: Runner, gateway: Gateway, branch: Branch) -> None:
    health = gateway.start()
    assert health["status"] == "ok"
    assert gateway.network is (health.get("egress") is not False)
    assert ("no network" in gateway.prompt(branch)) is not gateway.network
    json.dumps(health)
