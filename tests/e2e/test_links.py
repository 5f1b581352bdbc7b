"""Signed links: one file for whoever has the link, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.runner import Chat, Runner, running


@pytest.fixture
def anybody(runner: Runner) -> Iterator[httpx.Client]:
    """A client without a key."""
    with httpx.Client(base_url=runner.url) as client:
        yield client


def link(chat: Chat, status: int = 200, **body: Any) -> dict[str, Any]:
    answer = chat.http.post(f"/v1/conversations/{chat.id}/links", json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_link_gives_the_file_without_a_key(chat: Chat, anybody: httpx.Client) -> None:
    chat.put("outputs/bericht ü.pdf", b"%PDF-1.7 content")
    made = link(chat, path="/workspace/outputs/bericht ü.pdf")
    assert (made["path"], made["url"].startswith("/v1/links/")) == ("outputs/bericht ü.pdf", True)
    got = anybody.get(made["url"])
    assert (got.status_code, got.content) == (200, b"%PDF-1.7 content")
    assert got.headers["content-disposition"].startswith("attachment;")
    assert got.headers["content-security-policy"].startswith("sandbox")
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["referrer-policy"] == "no-referrer"
    assert got.headers["cache-control"] == "private, no-cache"
    part = anybody.get(made["url"], headers={"Range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, b"%PDF")
    head = anybody.head(made["url"])
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "16")
    assert anybody.get(f"/v1/conversations/{chat.id}/files/outputs/x").status_code == 401


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.png", "inline"), ("a.pdf", "inline"), ("a.txt", "inline"),
        ("a.html", "attachment"), ("a.svg", "attachment"), ("a.xml", "attachment"), ("a", "attachment"),
    ],
)  # fmt: skip
def test_only_harmless_types_are_shown(chat: Chat, anybody: httpx.Client, name: str, kind: str) -> None:
    chat.put(name, b"<script>alert(1)</script>")
    got = anybody.get(link(chat, path=name, disposition="inline")["url"])
    assert got.headers["content-disposition"].startswith(kind)
    assert got.headers["content-security-policy"].startswith("sandbox")
    assert (
        chat.http.get(f"/v1/conversations/{chat.id}/files/{name}", params={"disposition": "inline"})
        .headers["content-disposition"]
        .startswith(kind)
    )


def test_a_link_dies_with_its_content(chat: Chat, anybody: httpx.Client) -> None:
    chat.put("a.txt", b"one")
    url = link(chat, path="a.txt")["url"]
    chat.put("a.txt", b"two")
    assert anybody.get(url).status_code == 404
    chat.put("a.txt", b"one")
    assert anybody.get(url).text == "one"
    chat.http.delete(f"/v1/conversations/{chat.id}/files/a.txt")
    assert anybody.get(url).status_code == 404


def test_a_link_to_a_version_stays(chat: Chat, anybody: httpx.Client) -> None:
    chat.ok("open('a.txt', 'w').write('one'); None")
    url = link(chat, path="a.txt", version=1)["url"]
    chat.ok("open('a.txt', 'w').write('two'); None")
    assert anybody.get(url).text == "one"


def test_a_link_dies_with_its_conversation_even_when_that_comes_again(chat: Chat, anybody: httpx.Client) -> None:
    chat.put("a.txt", b"one")
    url = link(chat, path="a.txt")["url"]
    chat.purge()
    assert anybody.get(url).status_code == 404
    chat.put("a.txt", b"one")
    assert chat.get("a.txt").text == "one"
    assert anybody.get(url).status_code == 404


def test_wrong_links_say_nothing(chat: Chat, anybody: httpx.Client) -> None:
    chat.put("a.txt", b"one")
    url = link(chat, path="a.txt")["url"]
    token = url.rpartition("/")[2]
    details = set()
    for wrong in ("x", token[:-1], token + "A", token.replace(".", ""), token[1:], "%00", "%FF", "x" * 9000):
        answer = anybody.get(f"/v1/links/{wrong}")
        assert answer.status_code == 404, wrong
        assert answer.headers["content-type"] == "application/problem+json"
        details.add(answer.json()["detail"])
    assert len(details) == 1
    for method in ("PUT", "POST", "DELETE"):
        answer = anybody.request(method, url)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    for climb in ("/v1/links/../conversations", "/v1/links/%2E%2E/conversations", "/v1/links/x/../../conversations"):
        target = {"target": climb.encode()}  # as it stands; clients would resolve it
        assert anybody.get("/", extensions=target).status_code == 404


def test_links_that_cannot_be_made(chat: Chat) -> None:
    chat.put("a.txt", b"one")
    assert link(chat, 404, path="b.txt")["code"] == "not_found"
    assert link(chat, 404, path="a.txt", version=0)["code"] == "not_found"
    assert link(chat, 422, path="../a.txt")["code"] == "invalid_path"
    week = 7 * 24 * 3_600_000
    for bad in (0, 999, week + 1, "1000", 1000.5, None):
        assert "expires_in_ms" in link(chat, 422, path="a.txt", expires_in_ms=bad)["detail"]
    assert link(chat, path="a.txt", expires_in_ms=week)["expires_at"].endswith("Z")
    assert "disposition" in link(chat, 422, path="a.txt", disposition="form-data")["detail"]


def test_links_outlive_a_restart_and_are_kept_out_of_the_log(tmp_path: Path) -> None:
    with running(tmp_path, SANDBOX_POOL_SIZE="0") as service:
        with service.client() as http:
            chat = Chat(http)
            chat.put("a.txt", b"one")
            url = link(chat, path="a.txt")["url"]
        service.stop()
        service.start()
        assert httpx.get(service.url + url).text == "one"
        assert url.rpartition(".")[2] not in service.log.read_text()
    assert (tmp_path / "link.key").stat().st_mode & 0o777 == 0o600
