"""Names of every kind, in one table: what is stored is what is listed, fetched, packed and seen in the sandbox."""

from __future__ import annotations

import io
import json
import tarfile
import unicodedata
import zipfile
from urllib.parse import unquote

import pytest

from tests.support.runner import Chat, quote

NAMES: tuple[str, ...] = (
    "plain.txt",
    "with space.txt",
    " leading and trailing ",
    "中文 报告.txt",
    "تقرير.txt",
    "\u202egpj.exe",
    "a\u200fb\u200e.txt",
    unicodedata.normalize("NFC", "café.txt"),
    unicodedata.normalize("NFD", "café.txt"),
    "Case.txt",
    "case.txt",
    "CASE.TXT",
    "👩‍👩‍👧.txt",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "x" * 255,
    "é" * 127 + "x",
    "quo\"te's.txt",
    "semi;colon,comma=.txt",
    "new\nline.txt",
    "carriage\rreturn",
    "tab\tbell\x07",
    "del\x7f",
    "-rf",
    "--help",
    "back\\slash",
    "C:\\dir\\file.txt",
    "C:",
    "CON",
    "nul.txt",
    "percent%41.txt",
    "percent%2Fslash",
    "%",
    "hash#question?.txt",
    "plus+and&amp.txt",
    "*?[glob]{a,b}",
    "$HOME `id` $(id)",
    "...",
    ".hidden",
    "..two",
    "dot.",
    "~",
    "a:b|c<d>e",
    "\ufeffmark",
    "nul\u2400",
    "\U0010ffff",
)
REFUSED: dict[str, str] = {
    "../x": "'..'",
    "uploads/../../x": "'..'",
    "a/..": "'..'",
    "..": "'..'",
    "/etc/passwd": "outside the workspace",
    "uploads/": "slash at the end",
    ".": "workspace itself",
    "/workspace": "workspace itself",
    "a/" * 70 + "b": "folders deep",
    "y" * 256: "shorten",
    "é" * 128: "shorten",
    "/".join(["z" * 200] * 6): "shorten",
    "a\0b": "NUL",
}
FOLDER = "uploads/ordner 夹"


def shown(name: str) -> str:
    """The name in a Content-Disposition header."""
    return unquote(name.partition("filename*=UTF-8''")[2])


def test_every_name_is_the_same_everywhere(chat: Chat) -> None:
    names = NAMES
    if chat.http.get("/healthz").json()["backend"] == "unisolated":  # proot itself knows no name of 255 bytes
        names = tuple(name for name in NAMES if len(name.encode()) < 255)
    contents = {f"{FOLDER}/{name}": f"content {number}".encode() for number, name in enumerate(names)}
    for path, content in contents.items():
        stored = chat.put(path, content)
        assert (stored.status_code, stored.json()["path"]) == (201, path), stored.text
    assert sorted(chat.files()) == sorted(contents)
    code = f"import os, json; print(json.dumps({{n: open('{FOLDER}/' + n).read() for n in os.listdir('{FOLDER}')}}))"
    seen = json.loads(chat.ok(code)["stdout"])
    assert {f"{FOLDER}/{name}": text.encode() for name, text in seen.items()} == contents
    for path, content in contents.items():
        got = chat.get(path)
        assert got.content == content
        header = got.headers["content-disposition"]
        assert header.isascii() and header.isprintable() and header.startswith("attachment;")
        assert shown(header) == path.rpartition("/")[2]
    packed = {kind: archive(chat, kind) for kind in ("zip", "tar.gz")}
    assert packed["zip"] == packed["tar.gz"] == contents
    moved = chat.http.post(f"/v1/conversations/{chat.id}/moves", json={"from": FOLDER, "to": "outputs/\n"})
    assert [entry["path"] for entry in moved.json()["files"]] == sorted(
        p.replace(FOLDER, "outputs/\n") for p in contents
    )


def archive(chat: Chat, format: str) -> dict[str, bytes]:
    answer = chat.http.get(f"/v1/conversations/{chat.id}/archive", params={"format": format, "prefix": FOLDER})
    assert answer.status_code == 200, answer.text
    if format == "zip":
        with zipfile.ZipFile(io.BytesIO(answer.content)) as zipped:
            return {entry.filename: zipped.read(entry) for entry in zipped.infolist()}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tarred:
        for entry in tarred:
            file = tarred.extractfile(entry)
            assert file is not None
            found[entry.name] = file.read()
    return found


def test_names_made_in_the_sandbox_come_back(chat: Chat) -> None:
    made = chat.ok(
        f"import json; [open('outputs/' + n, 'w').write('x') for n in json.loads({json.dumps(NAMES[:20])!r})]; 0"
    )
    paths = sorted(f"outputs/{name}" for name in NAMES[:20])
    assert sorted(file["path"] for file in made["files"]) == paths == sorted(chat.files())
    for path in paths:
        assert chat.http.delete(f"/v1/conversations/{chat.id}/files/{quote(path)}").status_code == 204
    assert chat.ok("import os; print(os.listdir('outputs'))")["stdout"] == "[]\n"


@pytest.mark.parametrize("path", REFUSED, ids=lambda path: ascii(path)[:20])
def test_refused_names_say_what_to_change(chat: Chat, path: str) -> None:
    base = f"/v1/conversations/{chat.id}"
    chat.put("a", b"x")
    answers = (
        chat.http.put(f"{base}/files/{quote(path).replace('.', '%2E')}", content=b"x"),
        chat.http.post(f"{base}/moves", json={"from": "a", "to": path}),
        chat.http.post(f"{base}/links", json={"path": path}),
        chat.http.post(f"{base}/files", files=[("file", (path, b"x"))]) if "\0" not in path else None,
    )
    for answer in answers:
        if answer is not None:
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_path"), answer.text
            assert REFUSED[path] in answer.json()["detail"]
            assert answer.headers["content-type"] == "application/problem+json"
    assert chat.files() == ["a"]


@pytest.mark.parametrize("encoded", ["bad%FFutf8", "%C3", "%ED%A0%80"])
def test_names_that_are_not_utf8(chat: Chat, encoded: str) -> None:
    answer = chat.http.put(f"/v1/conversations/{chat.id}/files/{encoded}", content=b"x")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_path")
    assert "UTF-8" in answer.json()["detail"]


def test_an_encoded_slash_is_a_slash_in_a_path(chat: Chat) -> None:
    assert chat.http.put(f"/v1/conversations/{chat.id}/files/a%2Fb", content=b"x").json()["path"] == "a/b"
    assert chat.http.put(f"/v1/conversations/{chat.id}/files/a%252Fb", content=b"y").json()["path"] == "a%2Fb"
    assert chat.files() == ["a%2Fb", "a/b"]
