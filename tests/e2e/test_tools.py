"""The catalogue and calls of tools over HTTP."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from typing import Any

import httpx
import pytest

from tests.e2e.test_documentation import check, examples
from tests.support.runner import Chat, Runner

OFFERED = ["python_execute", "run_in_sandbox", "read_sandbox_output", "list_attachments", "zip_attachments"]


def call(chat: Chat, tool: str, **arguments: Any) -> httpx.Response:
    """Call a tool."""
    return chat.http.post(f"/v1/conversations/{chat.id}/tools/{tool}", json=arguments)


def done(chat: Chat, tool: str, **arguments: Any) -> dict[str, Any]:
    """What it gives; it must succeed."""
    answer = call(chat, tool, **arguments)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def wrong(chat: Chat, tool: str, **arguments: Any) -> dict[str, Any]:
    """The problem that it answers with."""
    answer = call(chat, tool, **arguments)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    found: dict[str, Any] = answer.json()
    assert found["status"] == answer.status_code
    return found


# -- catalogue ---------------------------------------------------------------------------------------------------


def test_the_catalogue_is_what_health_says(http: httpx.Client) -> None:
    names = [tool["name"] for tool in http.get("/v1/tools").json()["tools"]]
    assert names == OFFERED == http.get("/healthz").json()["capabilities"]


@pytest.mark.parametrize("form", ["native", "openai", "anthropic", "mcp", "prompt"])
def test_the_catalogue_has_an_etag_that_stays(http: httpx.Client, form: str) -> None:
    first = http.get("/v1/tools", params={"format": form})
    again = http.get("/v1/tools", params={"format": form}, headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    other = http.get("/v1/tools", params={"format": form, "stateless": "1"})
    assert other.headers["etag"] != first.headers["etag"]
    kind = "text/plain; charset=utf-8" if form == "prompt" else "application/json"
    assert first.headers["content-type"] == kind
    assert http.head("/v1/tools", params={"format": form}).headers["etag"] == first.headers["etag"]


def test_absent_tools_are_told_with_the_setting(http: httpx.Client) -> None:
    absent = http.get("/v1/tools", params={"include": "unavailable"}).json()["unavailable"]
    assert {
        "name": "fetch_image",
        "reason": "this service does not fetch from the web",
        "setting": "SANDBOX_FETCH=1",
    } in absent
    assert not {item["name"] for item in absent} & set(OFFERED)


@pytest.mark.parametrize("query", ["format=xml", "stateless=yes", "include=all", "formt=mcp"])
def test_queries_that_are_none(http: httpx.Client, query: str) -> None:
    assert http.get(f"/v1/tools?{query}").status_code == 422


def test_the_catalogue_wants_a_key(http: httpx.Client) -> None:
    assert httpx.get(f"{http.base_url}/v1/tools").status_code == 401
    assert httpx.post(f"{http.base_url}/v1/conversations/x/tools/python_execute", json={"code": "1"}).status_code == 401


def test_without_egress_there_is_no_network_to_ask_for(chat: Chat) -> None:
    if chat.http.get("/healthz").json().get("egress") is not False:
        pytest.fail("this service was started without egress")
    (tool,) = [
        t for t in chat.http.get("/v1/tools?format=openai").json()["tools"] if t["function"]["name"] == "run_in_sandbox"
    ]
    assert "network" not in tool["function"]["parameters"]["properties"]
    assert "no network at all" in tool["function"]["description"]
    refused = wrong(chat, "run_in_sandbox", language="bash", code="true", network=True)
    assert (refused["status"], refused["code"]) == (422, "invalid_arguments") and "network" in refused["detail"]
    assert done(chat, "run_in_sandbox", language="bash", code="true", network=False)["exit_code"] == 0


# -- calls that are wrong ----------------------------------------------------------------------------------------


def test_an_unknown_tool_names_the_known_ones(chat: Chat) -> None:
    found = wrong(chat, "python_exec", code="1")
    assert (found["status"], found["code"], found["known"]) == (404, "unknown_tool", OFFERED)
    assert all(name in found["detail"] for name in OFFERED)


def test_an_absent_tool_names_the_setting(chat: Chat) -> None:
    found = wrong(chat, "fetch_image", url="http://example.com/a.png")
    assert (found["status"], found["code"], found["setting"]) == (409, "tool_unavailable", "SANDBOX_FETCH=1")
    found = wrong(chat, "render_typst", source="x")
    assert (found["status"], found["code"]) == (409, "tool_unavailable") and "planned" in found["detail"]


@pytest.mark.parametrize(("tool", "arguments", "field"), [
    ("python_execute", {}, "code"), ("python_execute", {"code": 1}, "code"), ("python_execute", {"code": ""}, "code"),
    ("python_execute", {"code": "1", "cod": "2"}, "cod"), ("run_in_sandbox", {"code": "1"}, "language"),
    ("run_in_sandbox", {"language": "ruby", "code": "1"}, "language"),
    ("run_in_sandbox", {"language": "bash", "code": " \n"}, "code"),
    ("run_in_sandbox", {"language": "bash", "code": "1", "files": [{"name": "a"}]}, "files.0.content"),
    ("zip_attachments", {"paths": []}, "paths"), ("zip_attachments", {"paths": ["a"] * 65}, "paths"),
    ("list_attachments", {"x": 1}, "x"), ("read_sandbox_output", {"id": "x", "action": "cat"}, "action"),
])  # fmt: skip
def test_bad_arguments_show_the_shape(chat: Chat, tool: str, arguments: dict[str, Any], field: str) -> None:
    found = wrong(chat, tool, **arguments)
    assert (found["status"], found["code"]) == (422, "invalid_arguments")
    assert found["errors"][0]["field"] == field, found
    shape = json.loads(found["detail"].partition("; expected ")[2])
    assert shape["type"] == "object"


def test_bodies_that_are_no_object(chat: Chat) -> None:
    url = f"/v1/conversations/{chat.id}/tools/python_execute"
    kind = {"Content-Type": "application/json"}
    for body in (b"[]", b'"code"', b"{", b'{"code":"1","code":"2"}', b"3"):
        assert chat.http.post(url, content=body, headers=kind).status_code == 422, body
    assert chat.http.post(url, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert chat.http.post(url).json()["code"] == "invalid_arguments"
    assert chat.http.post("/v1/conversations/..%2fx/tools/python_execute", json={"code": "1"}).status_code in (404, 422)


# -- tools -------------------------------------------------------------------------------------------------------


def test_python_keeps_its_variables_and_lists_files(chat: Chat) -> None:
    done(chat, "python_execute", code="x = 41")
    found = done(chat, "python_execute", code="open('outputs/a.txt', 'w').write('hi')\nx + 1")
    assert (found["outcome"], found["interpreter"]) == ("ok", "kept")
    assert found["results"][0]["data"]["text/plain"] == "42"
    assert [(f["path"], f["change"], f["kind"]) for f in found["files"]] == [
        ("outputs/a.txt", "created", "deliverable")
    ]
    failed = done(chat, "python_execute", code="1/0")
    assert (failed["outcome"], failed["error"]["name"]) == ("error", "ZeroDivisionError")


def test_a_program_that_fails_is_a_result(chat: Chat) -> None:
    found = done(chat, "run_in_sandbox", language="bash", code="echo out; echo err >&2; exit 3")
    assert (found["exit_code"], found["timed_out"], found["output_truncated"]) == (3, False, False)
    assert (found["stdout"], found["stderr"], found["artifacts"]) == ("out\n", "err\n", [])


def test_a_program_starts_without_variables_and_leaves_those_of_cells_alone(chat: Chat) -> None:
    done(chat, "python_execute", code="x = 1")
    found = done(chat, "run_in_sandbox", language="python", code="print('x' in globals())")
    assert found["stdout"] == "False\n"
    assert done(chat, "python_execute", code="x")["results"][0]["data"]["text/plain"] == "1"
    done(chat, "run_in_sandbox", language="bash", code="true", fresh=True)
    assert done(chat, "python_execute", code="x")["outcome"] == "error"


def test_staging(chat: Chat) -> None:
    chat.put("uploads/data.csv", b"a,b\n1,2\n")
    found = done(
        chat,
        "run_in_sandbox",
        language="bash",
        code="cat table.csv note.md plan.md sub/t.txt; cp plan.md outputs/",
        attachments=[{"id": "att:data.csv", "name": "table.csv"}, {"id": "none.csv"}, {"path": "uploads/data.csv"}],
        documents=[
            {"document_id": "doc_1", "version": 3, "title": "Plan", "format": "markdown", "content": "# plän\n"},
            {"document_id": "doc_2", "title": "Gone"},
        ],
        files=[{"name": "note.md", "content": "note\n"}, {"name": "sub/t.txt", "content": "tëxt\n"}],
    )
    assert found["stdout"] == "a,b\n1,2\nnote\n# plän\ntëxt\n"
    assert [item["name"] for item in found["staged_files"]] == ["table.csv", "data.csv"]
    assert found["staged_documents"] == [{"document_id": "doc_1", "version": 3, "name": "plan.md"}]
    assert len(found["attachment_notes"]) == 2 and "none.csv" in found["attachment_notes"][0]
    assert [item["id"] for item in found["artifacts"]] == ["outputs/plan.md"]
    assert [f["path"] for f in found["files"]] == [
        "table.csv",
        "data.csv",
        "plan.md",
        "note.md",
        "sub/t.txt",
        "outputs/plan.md",
    ]
    assert chat.get("plan.md").content == "# plän\n".encode()


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../b", "", "a\0b"])
def test_unsafe_names_are_refused_before_anything_runs(chat: Chat, name: str) -> None:
    found = wrong(chat, "run_in_sandbox", language="bash", code="true", files=[{"name": name, "content": "x"}])
    assert found["status"] == 422
    found = wrong(chat, "run_in_sandbox", language="bash", code="true", attachments=[{"id": "a", "name": name or "/"}])
    assert found["status"] == 422


def test_long_output_is_read_in_parts(chat: Chat) -> None:
    found = done(chat, "run_in_sandbox", language="bash", code="seq 1 200000")
    stream = found["stdout"]
    assert found["output_truncated"] and stream["truncated"] and len(stream["preview"]) <= 4200
    ref = stream["full_output_ref"]
    assert ref == f"{found['execution_id']}/stdout.txt"
    head = done(chat, "read_sandbox_output", id=ref, limit=2)
    assert (head["total_lines"], head["returned_lines"], head["matched_lines"]) == (200_000, 2, None)
    assert (head["content"], head["more_available"]) == ("1: 1\n2: 2", True)
    tail = done(chat, "read_sandbox_output", id=ref, action="tail", limit=1)
    assert tail["content"] == "200000: 200000"
    part = done(chat, "read_sandbox_output", id=ref, action="range", start_line=10, end_line=12)
    assert (part["content"], part["more_available"]) == ("10: 10\n11: 11\n12: 12", False)
    assert done(chat, "read_sandbox_output", id=ref, action="range", start_line=199_999)["returned_lines"] == 2
    assert done(chat, "read_sandbox_output", id=ref, action="range", start_line=300_000)["content"] == ""
    few = done(chat, "read_sandbox_output", id=ref, limit=5000, max_bytes=1)
    assert len(few["content"]) <= 256 and few["more_available"]
    hits = done(chat, "read_sandbox_output", id=ref, action="grep", query="^1999\\d0$", limit=3)
    assert (hits["matched_lines"], hits["returned_lines"], hits["more_available"]) == (10, 3, True)
    assert hits["content"].startswith("19990: 19990\n") or hits["content"].startswith("199900: 199900\n")
    none = done(chat, "read_sandbox_output", id=ref, action="grep", query="nothing")
    assert (none["matched_lines"], none["content"], none["more_available"]) == (0, "", False)


def test_reading_what_is_not_there(chat: Chat) -> None:
    run = done(chat, "run_in_sandbox", language="bash", code="printf 'a\\nb\\n'")
    ref = f"{run['execution_id']}/stdout"
    assert done(chat, "read_sandbox_output", id=ref)["content"] == "1: a\n2: b"
    assert wrong(chat, "read_sandbox_output", id=ref, action="grep")["code"] == "invalid_arguments"
    assert wrong(chat, "read_sandbox_output", id=ref, action="grep", query="(")["code"] == "invalid_arguments"
    assert wrong(chat, "read_sandbox_output", id="outputs/a.txt")["code"] == "invalid_arguments"
    assert wrong(chat, "read_sandbox_output", id="0" * 32 + "/stdout.txt")["code"] == "not_found"


def test_lines_end_at_newlines_alone(chat: Chat) -> None:
    run = done(chat, "run_in_sandbox", language="bash", code="printf 'a\\rx\\r\\n\\fb\\nx\\n'")
    ref = f"{run['execution_id']}/stdout"
    assert done(chat, "read_sandbox_output", id=ref)["content"] == "1: a\rx\n2: \fb\n3: x"
    hits = done(chat, "read_sandbox_output", id=ref, action="grep", query="x$")
    assert (hits["content"], hits["matched_lines"]) == ("1: a\rx\n3: x", 2)


def test_what_is_beyond_the_bytes_asked_for_or_kept_is_told(chat: Chat) -> None:
    code = "import sys; sys.stdout.write('ä' * 5000 + '\\n' + 'filler\\n' * 2_500_000 + 'needle\\n')"
    run = done(chat, "run_in_sandbox", language="python", code=code)
    ref = run["stdout"]["full_output_ref"]
    head = done(chat, "read_sandbox_output", id=ref, max_bytes=300)
    assert len(head["content"].encode()) <= 300 and "[cut: this line has 10000 bytes]" in head["content"]
    assert head["more_available"] is True
    hits = done(chat, "read_sandbox_output", id=ref, action="grep", query="needle")
    assert (hits["matched_lines"], hits["truncated"], hits["searched_bytes"]) == (0, True, 16 << 20)
    assert hits["total_bytes"] == run["stdout"]["total_bytes"] == 10_001 + 7 * 2_500_001
    assert f"{16 << 20} of {hits['total_bytes']} bytes" in hits["content"]


def test_an_endless_expression_costs_the_service_nothing(chat: Chat) -> None:
    run = done(chat, "run_in_sandbox", language="bash", code="printf 'a%.0s' {1..40}; echo !")
    ref = f"{run['execution_id']}/stdout.txt"
    found = wrong(chat, "read_sandbox_output", id=ref, action="grep", query="^(a+)+$")
    assert (found["status"], found["code"]) == (502, "tool_failed")
    assert chat.http.get("/livez", timeout=2).status_code == 200


def test_listing_and_packing(chat: Chat) -> None:
    assert done(chat, "list_attachments") == {"count": 0, "attachments": [], "files": []}
    chat.put("uploads/a/report.txt", b"one")
    chat.put("uploads/b/report.txt", b"two")
    chat.put("outputs/grüße 1.txt", b"three")
    chat.put("scratch.txt", b"not shown")
    listed = done(chat, "list_attachments")
    assert listed["count"] == 3
    assert [item["path"] for item in listed["attachments"]] == [
        "outputs/grüße 1.txt",
        "uploads/b/report.txt",
        "uploads/a/report.txt",
    ]
    paths = ["uploads/a/report.txt", "uploads/b/report.txt", "grüße 1.txt"]
    made = done(chat, "zip_attachments", ids=paths, filename="all files.zip")
    assert (made["path"], made["entry_count"], made["uncompressed_size"]) == ("/workspace/outputs/all-files.zip", 3, 11)
    assert [f["path"] for f in made["files"]] == ["outputs/all-files.zip"]
    with zipfile.ZipFile(io.BytesIO(chat.get("outputs/all-files.zip").content)) as archive:
        assert {info.filename: archive.read(info) for info in archive.infolist()} == {
            "report.txt": b"one", "report-2.txt": b"two", "grüße 1.txt": b"three",
        }  # fmt: skip
        assert all(info.compress_type == zipfile.ZIP_DEFLATED for info in archive.infolist())
    assert wrong(chat, "zip_attachments", paths=["uploads/a/report.txt", "no.txt"])["code"] == "invalid_arguments"
    assert wrong(chat, "zip_attachments", paths=["scratch.txt"], filename="a/b.zip")["code"] == "invalid_arguments"


def test_packing_again_and_what_is_in_the_way(chat: Chat) -> None:
    chat.put("uploads/a.txt", b"one")
    made = [done(chat, "zip_attachments", paths=["a.txt"]) for _ in range(3)]
    assert [(one["size"], one["files"][0]["sha256"]) for one in made[1:]] == [
        (made[0]["size"], made[0]["files"][0]["sha256"])
    ] * 2
    itself = wrong(chat, "zip_attachments", paths=["attachments.zip"])
    assert itself["status"] == 422 and "is the archive itself" in itself["detail"]
    both = wrong(chat, "zip_attachments", paths=["a.txt"], ids=["b.txt"])
    assert both["status"] == 422 and "mean the same: write `paths` alone" in both["detail"]
    chat.ok(
        "import os; os.utime('uploads/a.txt', (0, 0)); os.makedirs('outputs/full.zip'); os.mkdir('outputs/bare.zip')"
    )
    chat.ok("open('outputs/full.zip/x', 'w').close(); os.symlink('/workspace/uploads/a.txt', 'outputs/link.zip')")
    with zipfile.ZipFile(io.BytesIO(_packed(chat, "old.zip"))) as archive:
        assert archive.read("a.txt") == b"one"
    for name in ("full.zip", "bare.zip"):
        found = wrong(chat, "zip_attachments", paths=["a.txt"], filename=name)
        assert (found["status"], found["code"]) == (409, "conflict") and f"outputs/{name}" in found["detail"]
    assert _packed(chat, "link.zip")[:2] == b"PK" and chat.get("uploads/a.txt").content == b"one"
    assert chat.ok("import glob; print(glob.glob('outputs/*part*') + glob.glob('outputs/tmp*'))")["stdout"] == "[]\n"


def _packed(chat: Chat, name: str) -> bytes:
    return chat.get(done(chat, "zip_attachments", paths=["a.txt"], filename=name)["id"]).content


def test_tools_of_another_conversation_see_nothing_of_this_one(chat: Chat, http: httpx.Client) -> None:
    chat.put("uploads/secret.txt", b"secret")
    run = done(chat, "run_in_sandbox", language="bash", code="cat uploads/secret.txt")
    other = Chat(http)
    assert wrong(other, "zip_attachments", paths=["uploads/secret.txt"])["code"] == "invalid_arguments"
    assert wrong(other, "read_sandbox_output", id=f"{run['execution_id']}/stdout")["code"] == "not_found"
    notes = done(other, "run_in_sandbox", language="bash", code="ls uploads", attachments=[{"id": "secret.txt"}])
    assert notes["stdout"] == "" and "attachment_notes" in notes
    other.purge()


def test_examples_of_the_page(runner: Runner, http: httpx.Client) -> None:
    env = {"PATH": "/usr/bin:/bin", "URL": runner.url, "KEY": runner.key}
    found = examples("docs/tools.md")
    assert len(found) == 3
    for command, _, answer in found:
        done = subprocess.run(["bash", "-ec", command], env=env, capture_output=True, text=True, timeout=60, check=True)
        check(json.loads(answer), json.loads(done.stdout), command)
    http.delete("/v1/conversations/chat-7")
