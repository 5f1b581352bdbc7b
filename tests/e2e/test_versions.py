"""Versions over HTTP: what changed and why, back to one, a new conversation from one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support import events
from tests.support.runner import Chat
from tests.support.waiting import aside, queued


def three_versions(chat: Chat) -> Chat:
    """a made; a changed and b made; a deleted."""
    chat.ok("open('a.txt', 'w').write('one'); None")
    chat.ok("open('a.txt', 'w').write('two'); open('b.txt', 'w').write('b'); None")
    chat.ok("import os; os.remove('a.txt')")
    return chat


@pytest.fixture
def written(chat: Chat) -> Chat:
    """A conversation with three versions."""
    return three_versions(chat)


@pytest.fixture(scope="module")
def standing(http: httpx.Client) -> Iterator[Chat]:
    """The same, for all tests that do not change it."""
    chat = three_versions(Chat(http))
    yield chat
    assert chat.files() == ["b.txt"]
    chat.purge()


@pytest.fixture
def other(http: httpx.Client) -> Iterator[Chat]:
    """An id for a fork, purged afterwards."""
    fork = Chat(http)
    yield fork
    fork.purge()


def get(chat: Chat, rest: str, **params: Any) -> Any:
    answer = chat.http.get(f"/v1/conversations/{chat.id}{rest}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(chat: Chat, rest: str, body: dict[str, Any], status: int = 200) -> Any:
    answer = chat.http.post(f"/v1/conversations/{chat.id}{rest}", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_versions_say_what_changed_and_why(standing: Chat) -> None:
    versions = get(standing, "/versions")["versions"]
    assert [v["version"] for v in versions] == [3, 2, 1, 0]
    assert [v["cause"]["kind"] for v in versions] == ["run", "run", "run", "create"]
    assert [v["base"] for v in versions] == [2, 1, 0, None]
    assert [tuple(v["changes"].values()) for v in versions] == [(0, 0, 1), (1, 1, 0), (1, 0, 0), (0, 0, 0)]
    assert [(v["file_count"], v["size_bytes"]) for v in versions] == [(1, 1), (2, 4), (1, 3), (0, 0)]
    assert all(len(v["cause"]["execution_id"]) == 32 for v in versions[:3])
    second = get(standing, "/versions/2")
    assert [(f["path"], f["change"]) for f in second["files"]] == [("a.txt", "modified"), ("b.txt", "created")]
    assert {key: second[key] for key in versions[1]} == versions[1]
    third = get(standing, "/versions/3")
    assert third["files"] == [{"path": "a.txt", "change": "deleted", "size": None, "sha256": None, "media_type": None}]


def test_pages(standing: Chat) -> None:
    first = get(standing, "/versions", limit=3)
    assert first["next"] == 1
    assert [v["version"] for v in get(standing, "/versions", limit=3, after=1)["versions"]] == [0]
    page = get(standing, "/versions/2", limit=1)
    assert ([f["path"] for f in page["files"]], page["next"]) == (["a.txt"], "a.txt")
    page = get(standing, "/versions/2", limit=1, after="a.txt")
    assert ([f["path"] for f in page["files"]], page["next"]) == (["b.txt"], None)


def test_files_of_any_version(standing: Chat) -> None:
    assert [f["path"] for f in get(standing, "/files", version=2)["files"]] == ["a.txt", "b.txt"]
    assert get(standing, "/files", version=1)["version"] == 1
    base = f"/v1/conversations/{standing.id}/files/a.txt"
    assert [standing.http.get(base, params={"version": n}).text for n in (1, 2)] == ["one", "two"]
    gone = standing.http.get(base)
    assert (gone.status_code, gone.json()["code"]) == (404, "not_found")
    assert standing.http.get(base, params={"version": 3}).status_code == 404
    assert standing.http.get(base, params={"version": 99}).status_code == 404
    for bad in ("-1", "x", "1.5", "9" * 400):
        assert standing.http.get(base, params={"version": bad}).status_code in (404, 422)


def test_back_to_a_version_reaches_the_sandbox_and_keeps_variables(written: Chat) -> None:
    written.ok("x = 41")
    restored = post(written, "/restore", {"version": 1})
    assert (restored["version"], restored["cause"]["kind"], restored["cause"]["version"]) == (4, "restore", 1)
    assert written.files() == ["a.txt"]
    seen = written.ok("import os; print(x, open('a.txt').read(), os.path.exists('b.txt'))")
    assert (seen["stdout"], seen["interpreter"]) == ("41 one False\n", "kept")
    again = post(written, "/restore", {"version": 1})
    assert again["version"] == 4


def test_uploads_that_no_version_holds_are_taken_back_too(written: Chat) -> None:
    written.put("new.txt", b"n")
    post(written, "/restore", {"version": 3})
    assert written.files() == ["b.txt"]


def test_restoring_waits_for_its_turn(written: Chat) -> None:
    code = "import time\ntry:\n print('on')\n time.sleep(100)\nexcept KeyboardInterrupt: pass\n"
    code += "open('late.txt', 'w').write('late')"
    with events.executing(written, code) as answer:
        told = events.read(answer)
        assert any(name == "stdout" for name, _ in told)
        restoring = aside(lambda: post(written, "/restore", {"version": 1}))
        queued(written.http, 1)
        events.interrupt(written, answer.headers["x-execution-id"])
        (done,) = [body["result"] for name, body in told if name == "done"]
    assert [file["path"] for file in done["files"]] == ["late.txt"]
    assert restoring.result(30)["version"] == done["version"] + 1
    assert written.files() == ["a.txt"]
    assert "late.txt" not in written.ok("import os; print(sorted(os.listdir()))")["stdout"]


def test_what_cannot_be_restored(standing: Chat) -> None:
    assert post(standing, "/restore", {"version": 99}, 404)["code"] == "not_found"
    for body in ({}, {"version": -1}, {"version": "1"}, {"version": 1.0}, {"version": True}, {"version": 1, "x": 1}):
        assert post(standing, "/restore", body, 422)["code"] == "invalid_arguments"
    assert get(standing, "/versions")["versions"][0]["version"] == 3


def test_a_fork_has_the_files_and_nothing_else(written: Chat, other: Chat) -> None:
    written.ok("secret = 1")
    made = post(written, "/fork", {"id": other.id, "version": 2}, 201)
    assert (made["id"], made["files"], made["version"]) == (other.id, 2, 0)
    assert other.get("a.txt").text == "two"
    cause = get(other, "/versions")["versions"][0]["cause"]
    assert (cause["kind"], cause["version"], cause["conversation"]) == ("fork", 2, written.id)
    seen = other.ok("print(open('a.txt').read(), 'secret' in globals())")
    assert (seen["stdout"], seen["interpreter"]) == ("two False\n", "new")
    other.put("a.txt", b"three")
    assert written.http.get(f"/v1/conversations/{written.id}/files/a.txt", params={"version": 2}).text == "two"
    written.purge()
    assert other.get("b.txt").text == "b"
    assert other.ok("print(open('b.txt').read())")["stdout"] == "b\n"


def test_a_fork_of_now_has_uploads(written: Chat, other: Chat) -> None:
    written.put("new.txt", b"n")
    post(written, "/fork", {"id": other.id}, 201)
    assert other.files() == ["b.txt", "new.txt"]


def test_what_cannot_be_forked(standing: Chat, other: Chat) -> None:
    assert post(standing, "/fork", {"id": standing.id}, 409)["code"] == "conflict"
    assert post(standing, "/fork", {"id": other.id, "version": 99}, 404)["code"] == "not_found"
    assert post(standing, "/fork", {"id": "../x"}, 422)["code"] == "invalid_arguments"
    assert post(other, "/fork", {"id": "new"}, 404)["code"] == "not_found"
    post(standing, "/fork", {"id": other.id}, 201)
    assert post(standing, "/fork", {"id": other.id}, 409)["code"] == "conflict"
