"""``fetch_image`` and ``fetch_file`` over HTTP: a service whose network leads to servers of this test; the guard is
the real one. Files are opened by another library than what made them, on this side.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import socket
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import pictures, sandboxes
from tests.support.runner import KEPT, Chat, Runner
from tests.support.web import PUBLIC, SITE, Web, lab_config, redirect, reply

MIB = 1 << 20
NAMES = {SITE: [[PUBLIC]], "inside.example": [["127.0.0.1"]], "mixed.example": [[PUBLIC, "192.168.0.1"]]}


@dataclass
class Lab:
    """The servers, and the service that can reach them."""

    web: Web
    canary: Web
    runner: Runner


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One service for this file."""
    folder = tmp_path_factory.mktemp("fetching")
    with Web().running() as web, Web().running() as canary:
        told = folder / "lab.json"
        limits = {"total_s": 6.0, "silence_s": 3.0, "connect_s": 3.0}
        told.write_text(json.dumps({**lab_config(web, canary, NAMES), "limits": limits}))
        with serving(folder / "data", told, SANDBOX_FETCH="1") as runner:
            yield Lab(web, canary, runner)


@contextlib.contextmanager
def serving(data: Path, told: Path, **env: str) -> Iterator[Runner]:
    """The service, started by the program that gives it the network of a test."""
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    prefix = [sys.executable, "-m", "tests.support.web_service", str(told)]
    runner = Runner(data, {**kept, **env}, prefix=prefix).start()
    try:
        yield runner
    finally:
        runner.stop()
        sandboxes.discard(runner)


@pytest.fixture
def there(lab: Lab) -> Iterator[Chat]:
    """A conversation of that service."""
    with lab.runner.client() as http:
        chat = Chat(http)
        yield chat
        chat.purge()


@pytest.fixture(scope="module")
def shared(lab: Lab) -> Iterator[Chat]:
    """A conversation with a sandbox, for the tests that need one but none of their own."""
    with lab.runner.client() as http:
        yield Chat(http)


def call(chat: Chat, tool: str, url: str, **arguments: Any) -> httpx.Response:
    """Call a tool that fetches."""
    return chat.http.post(f"/v1/conversations/{chat.id}/tools/{tool}", json={"url": url, **arguments})


def fetched(chat: Chat, tool: str, url: str, **arguments: Any) -> dict[str, Any]:
    """What it gives; it must succeed."""
    answer = call(chat, tool, url, **arguments)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(chat: Chat, tool: str, url: str, **arguments: Any) -> tuple[int, str]:
    """Status and code of a failure."""
    answer = call(chat, tool, url, **arguments)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


# -- what arrives ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "ending"), [("PNG", "png"), ("JPEG", "jpg"), ("GIF", "gif"), ("WEBP", "webp"),
                                              ("BMP", "bmp"), ("TIFF", "tiff"), ("AVIF", "avif")])  # fmt: skip
def test_a_picture_arrives_and_opens(lab: Lab, shared: Chat, kind: str, ending: str) -> None:
    content = pictures.AVIF if kind == "AVIF" else pictures.picture(kind)
    lab.web.pages[f"/{kind}.php"] = reply(content, headers={"Content-Type": "text/plain"})
    url = f"http://{SITE}/{kind}.php"
    found = fetched(shared, "fetch_image", url)
    digits = hashlib.sha256(url.encode()).hexdigest()[:8]
    path = f"downloads/{kind}-{digits}.{ending}"
    assert (found["path"], found["size"], found["url"]) == (f"/workspace/{path}", len(content), url)
    (file,) = found["files"]
    assert (file["path"], file["change"], file["size"]) == (path, "created", len(content))
    assert file["sha256"] == hashlib.sha256(content).hexdigest()
    kept = shared.get(path).content
    assert kept == content and pictures.is_the_picture(kept)
    shown = shared.ok(f"from PIL import Image\nprint(Image.open({found['path']!r}).size)")
    assert shown["stdout"] == "(24, 16)\n"


@pytest.mark.parametrize(("content", "ending"), [(pictures.HEIF, "heic"), (pictures.JXL, "jxl"), (pictures.SVG, "svg")],
                         ids=["heif", "jxl", "svg"])  # fmt: skip
def test_what_pillow_cannot_open_gets_a_twin(lab: Lab, shared: Chat, content: bytes, ending: str) -> None:
    lab.web.pages[f"/x.{ending}"] = reply(content, headers={"Content-Type": "image/png"})
    url = f"http://{SITE}/x.{ending}"
    found = fetched(shared, "fetch_image", url, filename="my picture!.png")
    stem = found["path"].removeprefix("/workspace/").rpartition(".")[0]
    assert found["path"].endswith(f".{ending}") and stem.startswith("downloads/my-picture-")
    assert found["png_path"] == f"/workspace/{stem}.png"
    assert [item["path"] for item in found["files"]] == [f"{stem}.{ending}", f"{stem}.png"]
    assert shared.get(f"{stem}.{ending}").content == content
    assert pictures.is_the_picture(shared.get(f"{stem}.png").content)
    again = fetched(shared, "fetch_image", url, filename="my picture!.png")
    assert again["png_path"] == found["png_path"]


def test_the_same_address_and_name_give_the_same_path(lab: Lab, there: Chat) -> None:
    lab.web.pages["/a.png"] = lab.web.pages["/b.png"] = reply(pictures.picture("PNG"))
    first = fetched(there, "fetch_image", f"http://{SITE}/a.png")
    second = fetched(there, "fetch_image", f"http://{SITE}/a.png")
    assert first["path"] == second["path"] and second["files"][0]["change"] == "modified"
    named = fetched(there, "fetch_image", f"http://{SITE}/a.png", filename="logo")
    other = fetched(there, "fetch_image", f"http://{SITE}/b.png", filename="logo")
    assert len({first["path"], named["path"], other["path"]}) == 3


@pytest.mark.parametrize(("filename", "stem"), [
    ("../../etc/passwd", "passwd"), ("C:\\temp\\a b.png", "a-b"), ("  .png", "image"), ("图片.png", "image"),
    ("a" * 300, "a" * 80), ("-rf", "rf"), ("x\n\r\0y.png", "x---y"), ("$(id).png", "id"), ("", "p"), ("..", "image"),
])  # fmt: skip
def test_names_are_made_safe(lab: Lab, there: Chat, filename: str, stem: str) -> None:
    lab.web.pages["/p.png"] = reply(pictures.picture("PNG"))
    url = f"http://{SITE}/p.png"
    found = fetched(there, "fetch_image", url, filename=filename)
    assert found["path"] == f"/workspace/downloads/{stem}-{hashlib.sha256(url.encode()).hexdigest()[:8]}.png"


def test_a_file_is_stored_as_an_upload_is(lab: Lab, there: Chat) -> None:
    """Durable before the answer, with no sandbox, and there for the next run."""
    lab.web.pages["/data/table.csv"] = reply(b"a,b\n1,2\n", headers={"Content-Type": "image/png"})
    found = fetched(there, "fetch_file", f"http://{SITE}/data/table.csv")
    path = found["path"].removeprefix("/workspace/")
    assert path.endswith(".csv") and path in there.files()
    assert there.http.get(f"/v1/conversations/{there.id}").json()["live"] is False
    assert there.ok(f"print(open({found['path']!r}).read())")["stdout"].startswith("a,b\n1,2")


@pytest.mark.parametrize(("content", "path", "ending"), [
    (b"%PDF-1.7\n", "/r.png", ".pdf"), (b"PK\x03\x04xx", "/r.docx", ".docx"), (b"PK\x03\x04xx", "/r.exe", ".zip"),
    (b"\x7fELF\x02\0", "/r.pdf", ".bin"), (b"<html><svg/></html>", "/r.svg", ".html"), (b"{}", "/r.json", ".json"),
    (b"#!/bin/sh\n", "/r.exe", ".txt"), (pictures.picture("PNG"), "/r.txt", ".png"),
])  # fmt: skip
def test_a_file_is_called_by_what_it_is(lab: Lab, there: Chat, content: bytes, path: str, ending: str) -> None:
    lab.web.pages[path] = reply(content)
    assert fetched(there, "fetch_file", f"http://{SITE}{path}")["path"].endswith(ending)


def test_a_redirect_is_followed(lab: Lab, there: Chat) -> None:
    lab.web.pages["/go"] = redirect("/p.png")
    lab.web.pages["/p.png"] = reply(pictures.picture("PNG"))
    found = fetched(there, "fetch_image", f"http://{SITE}/go")
    assert found["url"] == f"http://{SITE}/p.png" and "/go-" in found["path"]


# -- what does not -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [
    b"<!doctype html><html><svg></svg>", b"<html>" + b" " * 5000, b"plain", b"%PDF-1.7", b"PK\x03\x04", b"\x7fELF",
    b"\0\0\0\x14ftypmp42\0\0\0\0mp42heic", gzip.compress(pictures.SVG),
])  # fmt: skip
def test_what_is_no_picture_is_not_kept(lab: Lab, there: Chat, content: bytes) -> None:
    lab.web.pages["/p.png"] = reply(content, headers={"Content-Type": "image/png"})
    assert refused(there, "fetch_image", f"http://{SITE}/p.png") == (422, "unsupported_format")
    assert there.http.get(f"/v1/conversations/{there.id}").status_code == 404  # not even the conversation was made


def test_a_picture_may_have_32_mib_and_not_a_byte_more(lab: Lab, there: Chat) -> None:
    head = pictures.picture("PNG")
    lab.web.pages["/fits.png"] = reply(head + bytes(32 * MIB - len(head)), length=False)
    lab.web.pages["/over.png"] = reply(head + bytes(32 * MIB + 1 - len(head)), length=False)
    lab.web.pages["/33.png"] = reply(head + bytes(33 * MIB))
    assert fetched(there, "fetch_image", f"http://{SITE}/fits.png")["size"] == 32 * MIB
    assert refused(there, "fetch_image", f"http://{SITE}/over.png") == (413, "too_large")
    assert refused(there, "fetch_image", f"http://{SITE}/33.png") == (413, "too_large")
    assert refused(there, "fetch_file", f"http://{SITE}/33.png") == (413, "too_large")
    assert len(there.files()) == 1


def test_text_may_have_4_mib(lab: Lab, there: Chat) -> None:
    lab.web.pages["/fits.txt"] = reply(b"x" * 4 * MIB)
    lab.web.pages["/over.txt"] = reply(b"x" * (4 * MIB + 1))
    assert fetched(there, "fetch_file", f"http://{SITE}/fits.txt")["size"] == 4 * MIB
    assert refused(there, "fetch_file", f"http://{SITE}/over.txt") == (413, "too_large")


def test_a_bomb_is_cut_off(lab: Lab, there: Chat) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(MIB)) for _ in range(128)) + packer.flush()
    lab.web.pages["/bomb"] = reply(bomb, headers={"Content-Encoding": "gzip"})
    assert refused(there, "fetch_file", f"http://{SITE}/bomb") == (413, "too_large")


def test_a_slow_server_is_a_504(lab: Lab, there: Chat) -> None:
    def drip(sock: socket.socket, _: str) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                sock.sendall(b"x")
                sock.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    if not sock.recv(1):
                        return

    lab.web.pages["/slow"] = drip
    assert refused(there, "fetch_file", f"http://{SITE}/slow") == (504, "fetch_timeout")


def test_a_failing_server_is_a_502(lab: Lab, there: Chat) -> None:
    lab.web.pages["/broken"] = b"not http at all\r\n\r\n"
    assert refused(there, "fetch_file", f"http://{SITE}/broken") == (502, "fetch_failed")
    assert refused(there, "fetch_file", f"http://{SITE}/missing") == (502, "fetch_failed")
    assert refused(there, "fetch_file", "http://unknown.example/") == (502, "fetch_failed")


@pytest.mark.parametrize("url", [
    "http://127.0.0.1/", "http://[::1]/", "http://2130706433/", "http://inside.example/", "http://mixed.example/",
    "http://localhost/", "file:///etc/passwd", f"http://{SITE}:22/", f"http://user@{SITE}/", f"http://{SITE}\\@x/",
])  # fmt: skip
@pytest.mark.parametrize("tool", ["fetch_image", "fetch_file"])
def test_what_is_inside_is_not_reached(lab: Lab, there: Chat, tool: str, url: str) -> None:
    lab.web.pages["/go"] = redirect(url)
    assert refused(there, tool, url) == (422, "url_refused")
    assert refused(there, tool, f"http://{SITE}/go")[0] in (422, 502)
    assert lab.canary.connections == 0


def test_a_damaged_picture_says_so(lab: Lab, shared: Chat) -> None:
    lab.web.pages["/x"] = reply(pictures.HEIF[:200])
    answer = shared.http.post(f"/v1/conversations/{shared.id}/tools/fetch_image", json={"url": f"http://{SITE}/x"})
    found = answer.json()
    assert (answer.status_code, found["code"]) == (422, "corrupt")
    (file,) = found["files"]
    assert (file["change"], shared.get(file["path"]).content) == ("created", pictures.HEIF[:200])


def test_a_drawing_does_not_choose_how_many_pixels_its_twin_has(lab: Lab, shared: Chat) -> None:
    for size, (width, height) in {
        'width="32000" height="16000"': (8192, 4096),
        'viewBox="0 0 9000 18000"': (4096, 8192),
        'width="200in" height="10in"': (8192, 410),
        'width="24" height="16"': (24, 16),
    }.items():
        drawn = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><rect width="9" height="9"/></svg>'
        lab.web.pages["/large.svg"] = reply(drawn.encode())
        found = fetched(shared, "fetch_image", f"http://{SITE}/large.svg")
        shown = shared.ok(f"from PIL import Image\nprint(*Image.open({found['png_path']!r}).size)")["stdout"].split()
        assert [int(shown[0]), int(shown[1])] == pytest.approx([width, height], abs=2), size


def test_a_picture_of_the_sandbox_is_no_way_to_files_of_the_sandbox(lab: Lab, shared: Chat) -> None:
    """What an SVG refers to is not looked up."""
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="24" height="16"><image href="%s" width="24"/></svg>'
    shared.put("downloads/secret.png", pictures.picture("PNG"))
    for href in (b"secret.png", b"file:///workspace/downloads/secret.png", b"http://inside.example/a.png"):
        lab.web.pages["/x.svg"] = reply(svg % href)
        found = fetched(shared, "fetch_image", f"http://{SITE}/x.svg")
        assert not pictures.is_the_picture(shared.get(found["png_path"].removeprefix("/workspace/")).content)
    assert lab.canary.connections == 0


def test_the_quota_of_a_workspace_holds(lab: Lab, there: Chat) -> None:
    there.http.put(f"/v1/conversations/{there.id}", json={"limits": {"workspace_bytes": 1 << 20}})
    lab.web.pages["/big.bin"] = reply(b"\x7fELF" + bytes(2 << 20))
    assert refused(there, "fetch_file", f"http://{SITE}/big.bin") == (413, "quota_exceeded")
    assert there.files() == []


@pytest.mark.parametrize(("body", "field"), [({}, "url"), ({"url": 3}, "url"), ({"url": ""}, "url"),
                                             ({"url": "http://a.example", "headers": {}}, "headers")])  # fmt: skip
def test_bad_arguments_show_the_expected_shape(there: Chat, body: dict[str, Any], field: str) -> None:
    answer = there.http.post(f"/v1/conversations/{there.id}/tools/fetch_image", json=body)
    found = answer.json()
    assert (answer.status_code, found["code"]) == (422, "invalid_arguments")
    assert found["errors"][0]["field"] == field and '"filename"' in found["detail"]


def test_parallel_fetches_of_one_conversation(lab: Lab, there: Chat) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for number in range(12):
        lab.web.pages[f"/{number}.png"] = reply(pictures.picture("PNG"))
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda n: fetched(there, "fetch_image", f"http://{SITE}/{n}.png")["path"], range(12)))
    assert len(set(found)) == 12 == len(there.files())
    assert io.BytesIO(there.get(found[0].removeprefix("/workspace/")).content).read(4) == b"\x89PNG"


def test_without_the_setting_the_tools_are_absent(chat: Chat) -> None:
    names = [tool["name"] for tool in chat.http.get("/v1/tools").json()["tools"]]
    assert not {"fetch_image", "fetch_file"} & set(names)
    answer = call(chat, "fetch_image", f"http://{SITE}/a.png")
    assert (answer.status_code, answer.json()["code"]) == (409, "tool_unavailable")
    assert answer.json()["setting"] == "SANDBOX_FETCH=1" and "SANDBOX_FETCH=1" in answer.json()["detail"]
    chat.http.put(f"/v1/conversations/{chat.id}")
