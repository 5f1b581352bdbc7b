"""Two variables and a restart: what ``/healthz`` says, what is offered and what a sandbox has, and nothing else."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.egress.attempts import attempts
from tests.support.egress.service import granted
from tests.support.egress.world import ALLOWED, World
from tests.support.runner import Chat, Runner, running

NOT_OF_EGRESS = "egress", "egress_detail", "pool", "pressure"


def health(http: httpx.Client) -> dict[str, Any]:
    body: dict[str, Any] = http.get("/healthz").json()
    return body


def looks(http: httpx.Client) -> dict[str, Any]:
    """What must not change when egress does."""
    return {name: value for name, value in health(http).items() if name not in NOT_OF_EGRESS}


def offered(http: httpx.Client) -> tuple[list[dict[str, Any]], bool]:
    """The tools, without what may be said of the network in them; and whether one can be asked for it."""
    tools = {one["function"]["name"]: one["function"] for one in catalogue(http)}
    network = tools["run_in_sandbox"]["parameters"]["properties"].pop("network", None)
    for tool in tools.values():
        del tool["description"]
    return list(tools.values()), network is not None


def catalogue(http: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get("/v1/tools", params={"format": "openai"}).json()["tools"]
    return found


def test_the_two_variables_change_egress_and_nothing_else(tmp_path: Path, outside: World) -> None:
    data, first = tmp_path / "data", "c-1"
    with running(data) as service, service.client() as http:
        off, tools = looks(http), offered(http)[0]
        assert offered(http) == (tools, False)
        assert (health(http)["egress"], health(http)["egress_detail"]) == (False, "SANDBOX_EGRESS_NETWORK is not set")
        chat = Chat(http, first)
        chat.put("uploads/kept.txt", b"kept")
        refused = http.post(f"/v1/conversations/{first}/execute", json={"code": "1", "network": True})
        assert (refused.status_code, refused.json()["code"]) == (422, "egress_unavailable")
        assert "SANDBOX_EGRESS_NETWORK is not set" in refused.json()["detail"]
        setting = http.put(f"/v1/conversations/{first}", json={"network": True})
        assert (setting.status_code, setting.json()["code"]) == (422, "egress_unavailable")
        assert http.post("/v1/conversations/none-yet/execute", json={"code": "1", "network": True}).status_code == 422
        assert http.get("/v1/conversations/none-yet").status_code == 404
    with granted(outside) as settings, running(data, **settings) as service, service.client() as http:
        assert looks(http) == off
        assert health(http)["egress"] is True
        assert offered(http) == (tools, True)
        chat = Chat(http, first)
        fetch = """python -c 'import urllib.request as r; print(r.urlopen("http://allowed.test/").read())'"""
        asked = {"language": "bash", "code": fetch, "network": True}
        called = http.post(f"/v1/conversations/{first}/tools/run_in_sandbox", json=asked)
        assert f"hello from {ALLOWED}" in called.text
        assert attempts(chat, 'through_proxy("http://allowed.test/")')[0][0] == 200
        assert chat.ok("print(open('uploads/kept.txt').read())", network=False)["stdout"] == "kept\n"
        assert http.put(f"/v1/conversations/{first}", json={"network": True}).json()["network"] is True
    with running(data) as service, service.client() as http:
        assert (looks(http), health(http)["egress"], offered(http)) == (off, False, (tools, False))
        chat = Chat(http, first)
        blocked = http.post(f"/v1/conversations/{first}/execute", json={"code": "1"})
        assert (blocked.status_code, blocked.json()["code"]) == (422, "egress_unavailable")
        assert chat.ok("print(open('uploads/kept.txt').read())", network=False)["stdout"] == "kept\n"


@pytest.fixture(scope="module")
def service(whole_world: World, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with granted(whole_world) as settings, running(tmp_path_factory.mktemp("on") / "data", **settings) as made:
        yield made


def test_a_flip_gives_a_new_sandbox_with_the_same_files_and_says_so(service: Runner, outside: World) -> None:
    with service.client() as http:
        chat = Chat(http)
        first = chat.ok("x = 1; open('a.txt', 'w').write('kept')")
        flipped = chat.ok("print(open('a.txt').read(), 'x' in globals())", network=True)
        assert (flipped["stdout"], flipped["interpreter"]) == ("kept False\n", "new")
        assert flipped["interpreter_reason"] == "network_changed"
        same = chat.ok("print('y' in globals()); y = 1", network=True)
        assert (first["interpreter"], same["interpreter"]) == ("new", "kept")
        back = chat.ok("print('y' in globals(), open('a.txt').read())")
        assert (back["stdout"], back["interpreter_reason"]) == ("False kept\n", "network_changed")
        chat.purge()


def tool(chat: Chat, name: str, **arguments: Any) -> dict[str, Any]:
    answer = chat.http.post(f"/v1/conversations/{chat.id}/tools/{name}", json=arguments)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_tools_say_what_a_flip_took_and_make_none_themselves(service: Runner, outside: World) -> None:
    with service.client() as http:
        chat = Chat(http)
        chat.ok("x = 1; open('outputs/a.txt', 'w').write('kept')")
        flipped = tool(chat, "run_in_sandbox", language="bash", code="seq 1 9", network=True)
        assert (flipped["interpreter"], flipped["interpreter_reason"]) == ("new", "network_changed")
        chat.ok("y = 2", network=True)
        tool(chat, "zip_attachments", paths=["a.txt"])
        looked = {"id": f"{flipped['execution_id']}/stdout", "action": "grep", "query": "9"}
        assert tool(chat, "read_sandbox_output", **looked)["content"] == "9: 9"
        assert chat.ok("print(y)", network=True)["stdout"] == "2\n"
        assert http.put(f"/v1/conversations/{chat.id}", json={"network": True}).json()["network"] is True
        left_out = tool(chat, "run_in_sandbox", language="bash", code="true")
        assert (left_out["interpreter"], left_out["interpreter_reason"]) == ("kept", None)
        refused = tool(chat, "run_in_sandbox", language="bash", code="true", network=False)
        assert (refused["interpreter"], refused["interpreter_reason"]) == ("new", "network_changed")
        chat.purge()


def test_the_setting_of_a_conversation_holds_for_its_runs(service: Runner, outside: World) -> None:
    with service.client() as http:
        chat = Chat(http)
        made = http.put(f"/v1/conversations/{chat.id}", json={"network": True})
        assert (made.status_code, made.json()["network"]) == (201, True)
        chat.ok("x = 1")
        assert attempts(chat, 'through_proxy("http://allowed.test/")', network=None)[0][0] == 200
        assert chat.ok("x")["interpreter"] == "kept"
        assert chat.ok("print(1)", network=False)["interpreter_reason"] == "network_changed"
        forked = http.post(f"/v1/conversations/{chat.id}/fork", json={"id": f"{chat.id}-2"})
        assert forked.json()["network"] is True
        assert http.put(f"/v1/conversations/{chat.id}", json={"network": None}).json()["network"] is False
        chat.purge()


def test_pip_installs_what_the_list_allows(service: Runner, outside: World) -> None:
    (outside.folder / "hits.files" / "tinyparcel-1.0-py3-none-any.whl").write_bytes(wheel())
    index = "--index-url http://allowed.test/simple --trusted-host allowed.test"
    with service.client() as http:
        chat = Chat(http)
        chat.ok("import sys", network=True)
        done = chat.ok(f"pip install {index} tinyparcel numpy", language="bash", network=True, timeout_ms=100_000)
        assert "Successfully installed tinyparcel-1.0" in done["stdout"], done
        assert chat.ok("import tinyparcel; print(tinyparcel.word)", network=True)["stdout"] == "arrived\n"
        shown = chat.ok(
            "python -c 'import tinyparcel; print(tinyparcel.word)'; tinyparcel", language="bash", network=True
        )
        assert shown["stdout"] == "arrived\narrived\n"
        denied = chat.run(
            "pip install --retries 0 --index-url http://denied.test/simple --trusted-host denied.test nothing",
            language="bash", network=True, timeout_ms=100_000,
        )  # fmt: skip
        assert denied["exit_code"] != 0
        assert outside.hits(kind="http", host="denied.test") == []
        chat.purge()


def wheel() -> bytes:
    """A package of one module and one command."""
    made, info = io.BytesIO(), "tinyparcel-1.0.dist-info"
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("tinyparcel.py", "word = 'arrived'\ndef main():\n    print(word)\n")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinyparcel\nVersion: 1.0\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/entry_points.txt", "[console_scripts]\ntinyparcel = tinyparcel:main\n")
        file.writestr(f"{info}/RECORD", "")
    return made.getvalue()
