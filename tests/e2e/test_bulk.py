"""Many files in one request: a form or a tar stream, all of them or none; and moves, deletions, staging by hash."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.runner import Chat, running


def url(chat: Chat, rest: str = "/files") -> str:
    return f"/v1/conversations/{chat.id}{rest}"


def form(chat: Chat, files: dict[str, bytes], **params: Any) -> httpx.Response:
    return chat.http.post(url(chat), files=[("file", (name, c)) for name, c in files.items()], params=params)


def tar(files: dict[str, bytes], **fields: Any) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for field, value in fields.items():
                setattr(info, field, value)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def send_tar(chat: Chat, data: Any, kind: str = "application/x-tar", **headers: str) -> httpx.Response:
    return chat.http.post(url(chat), content=data, headers={"Content-Type": kind, **headers})


def contents(chat: Chat) -> dict[str, bytes]:
    return {path: chat.get(path).content for path in chat.files()}


FILES = {"a.txt": b"a", "uploads/ordner/ü 表.csv": b"x,y\n" * 40_000, "empty": b""}


def test_a_form_of_files(chat: Chat) -> None:
    answer = form(chat, FILES)
    assert answer.status_code == 200, answer.text
    assert [(f["path"], f["size"], f["sha256"]) for f in answer.json()["files"]] == [
        (path, len(content), hashlib.sha256(content).hexdigest()) for path, content in FILES.items()
    ]
    assert contents(chat) == FILES
    assert form(chat, {"b": b"b", "/workspace/c": b"c"}, prefix="outputs/in").status_code == 200
    assert {"outputs/in/b", "outputs/in/c"} < set(chat.files())
    assert (
        chat.ok("print(open('outputs/in/b').read(), len(open('uploads/ordner/ü 表.csv').read()))")["stdout"]
        == "b 160000\n"
    )


@pytest.mark.parametrize("kind", ["tar", "gzip", "encoded"])
def test_a_tar_of_files(chat: Chat, kind: str) -> None:
    data = tar(FILES, mode=0o755, mtime=1_600_000_000)
    if kind == "gzip":
        answer = send_tar(chat, gzip.compress(data), "application/gzip")
    elif kind == "encoded":
        answer = send_tar(chat, gzip.compress(data), **{"Content-Encoding": "gzip"})
    else:
        answer = send_tar(chat, data)
    assert answer.status_code == 200, answer.text
    assert contents(chat) == FILES
    assert {f["modified_at"] for f in answer.json()["files"]} == {"2020-09-13T12:26:40Z"}
    assert chat.ok("import os; print(os.access('a.txt', os.X_OK))")["stdout"] == "True\n"


def test_what_a_workspace_gives_it_takes(chat: Chat) -> None:
    form(chat, FILES)
    packed = chat.http.get(url(chat, "/archive"), params={"format": "tar.gz"}).content
    for path in chat.files():
        chat.http.delete(url(chat, f"/files/{path}"))
    assert send_tar(chat, packed, "application/gzip").status_code == 200
    assert contents(chat) == FILES


def member(name: str, kind: bytes, target: str = "") -> bytes:
    return tar({"good": b"1", name: b""}, type=kind, linkname=target)


BAD: dict[str, tuple[bytes, int, str]] = {
    "climbs": (tar({"good": b"1", "../evil": b"2"}), 422, "invalid_path"),
    "absolute": (tar({"good": b"1", "/evil": b"2"}), 422, "invalid_path"),
    "link": (member("l", tarfile.SYMTYPE, "/etc/passwd"), 422, "bad_archive"),
    "hard link": (member("l", tarfile.LNKTYPE, "good"), 422, "bad_archive"),
    "device": (member("d", tarfile.CHRTYPE), 422, "bad_archive"),
    "fifo": (member("f", tarfile.FIFOTYPE), 422, "bad_archive"),
    "twice": (tar({"good": b"1", "./good": b"2"}), 422, "invalid_arguments"),
    "a file and a folder": (tar({"good": b"1", "good/below": b"2"}), 409, "conflict"),
    "a standing folder": (tar({"good": b"1", "outputs": b"2"}), 409, "conflict"),
    "cut": (tar({"good": b"1", "big": b"2" * 5000})[:3000], 422, "bad_archive"),
    "not a tar": (b"PK\x03\x04" + bytes(5000), 422, "bad_archive"),
    "empty": (tar({}), 422, "invalid_arguments"),
    "nothing": (b"", 422, "bad_archive"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_archive_leaves_nothing(chat: Chat, case: str) -> None:
    data, status, code = BAD[case]
    for known in (False, True):  # nothing at all, so not even a conversation
        assert chat.http.get(url(chat, "")).status_code == (200 if known else 404)
        answer = send_tar(chat, data)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        chat.put("before", b"x")
    assert answer.headers["content-type"] == "application/problem+json"
    assert chat.files() == ["before"]


@pytest.mark.parametrize("known", [True, False])
def test_bad_forms_leave_nothing(chat: Chat, known: bool) -> None:
    if known:
        chat.put("before", b"x")
    answers = {
        "a field": chat.http.post(url(chat), files={"file": ("a", b"1")}, data={"note": "x" * 10_000_000}),
        "a field only": chat.http.post(url(chat), files={"note": (None, "text")}),
        "twice": chat.http.post(url(chat), files=[("file", ("a", b"1")), ("file", ("/work/a", b"2"))]),
        "climbs": form(chat, {"a": b"1", "../b": b"2"}),
        "no boundary": chat.http.post(url(chat), content=b"x", headers={"Content-Type": "multipart/form-data"}),
        "another boundary": chat.http.post(
            url(chat), content=b"--a\r\n\r\n--a--", headers={"Content-Type": "multipart/form-data; boundary=b"}
        ),
    }
    for case, answer in answers.items():
        assert answer.status_code == 422, (case, answer.text)
    assert chat.http.get(url(chat, "")).status_code == (200 if known else 404)
    clash = form(chat, {"a": b"1", "a/b": b"2"})
    assert (clash.status_code, clash.json()["code"]) == (409, "conflict")
    if known:
        assert chat.files() == ["before"]
    else:
        assert chat.http.get(url(chat, "")).status_code == 404


@pytest.mark.parametrize(
    ("rest", "body"),
    [
        ("/fork", {"id": "never-forked"}), ("/moves", {"from": "a", "to": "b"}), ("/links", {"path": "a"}),
        ("/restore", {"version": 0}), ("/interrupt", {}), ("/reset", None),
    ],
)  # fmt: skip
def test_what_needs_a_conversation_makes_none(chat: Chat, rest: str, body: dict[str, Any] | None) -> None:
    assert chat.http.post(url(chat, rest), json=body).status_code == 404
    assert chat.http.get(url(chat, "")).status_code == 404
    assert chat.http.get("/v1/conversations/never-forked").status_code == 404


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("application/zip", None), ("text/plain", None), ("", None), ("application/json", None),
        ("application/x-tar", "br"), ("multipart/form-data; boundary=x", "gzip"),
    ],
)  # fmt: skip
def test_other_types_are_told_what_to_send(chat: Chat, kind: str, encoding: str | None) -> None:
    headers = {"Content-Type": kind, **({"Content-Encoding": encoding} if encoding else {})}
    answer = chat.http.post(url(chat), content=b"x", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert "application/x-tar" in answer.json()["detail"]
    assert chat.http.get(url(chat, "")).status_code == 404


def test_limits_of_an_upload(tmp_path: Path) -> None:
    """A service of its own with low limits: members, bytes of a file, bytes in all, and a bomb."""
    env = {"SANDBOX_MAX_UPLOAD_FILES": "20", "SANDBOX_MAX_UPLOAD_BYTES": "1m", "SANDBOX_WORKSPACE_SIZE": "4m"}
    with running(tmp_path, SANDBOX_POOL_SIZE="0", **env) as service, service.client() as http:
        chat = Chat(http)
        many = {str(number): b"1" for number in range(21)}
        large = {"large": bytes((1 << 20) + 1)}
        total = {str(number): bytes(900_000) for number in range(6)}
        for files, code in ((many, "too_large"), (large, "too_large"), (total, "too_large")):
            for answer in (form(chat, files), send_tar(chat, tar(files))):
                assert (answer.status_code, answer.json()["code"]) == (413, code), answer.text
        assert "SANDBOX_MAX_UPLOAD_FILES" in form(chat, many).json()["detail"]

        def bomb() -> Iterator[bytes]:
            packer = zlib.compressobj(9, 8, 31)
            yield packer.compress(tar({"x": b""})[:512])
            while True:
                yield packer.compress(bytes(1 << 20))

        answer = send_tar(chat, bomb(), "application/gzip")
        assert (answer.status_code, answer.json()["code"]) in ((413, "too_large"), (422, "bad_archive"))

        def idle() -> Iterator[bytes]:
            while True:
                yield gzip.compress(b"") * 10_000  # packed, it holds nothing for ever

        answer = send_tar(chat, idle(), "application/gzip")
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert chat.http.get(url(chat, "")).status_code == 404
        assert send_tar(chat, tar({str(number): bytes(200_000) for number in range(20)})).status_code == 200
        assert len(chat.files()) == 20
        assert not list((tmp_path / "store" / "staging").iterdir())


def test_a_client_who_leaves_leaves_nothing(chat: Chat) -> None:
    def broken() -> Iterator[bytes]:
        yield tar({"a": b"1" * 100_000})[:50_000]
        raise RuntimeError("gone")

    chat.put("before", b"x")
    with pytest.raises(RuntimeError, match="gone"):
        send_tar(chat, broken())
    assert chat.files() == ["before"]


# -- one file, without or with a proof of its bytes --------------------------------------------------------------


def test_staging_by_hash(chat: Chat) -> None:
    content = b"some bytes"
    sha256 = hashlib.sha256(content).hexdigest()
    unknown = chat.http.put(url(chat, "/files/b"), params={"sha256": sha256})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
    chat.put("a", b"first")
    unknown = chat.http.put(url(chat, "/files/b"), params={"sha256": sha256})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_blob")
    chat.put("a", content)
    known = chat.http.put(url(chat, "/files/b"), params={"sha256": sha256})
    assert (known.status_code, known.json()["sha256"], known.headers["etag"]) == (201, sha256, f'"{sha256}"')
    assert chat.get("b").content == content
    assert chat.ok("print(open('b').read())")["stdout"] == "some bytes\n"
    other = Chat(chat.http)
    other.put("x", b"x")
    foreign = other.http.put(url(other, "/files/b"), params={"sha256": sha256})
    assert (foreign.status_code, foreign.json()["code"]) == (404, "unknown_blob")
    other.purge()
    assert chat.http.put(url(chat, "/files/c"), params={"sha256": sha256}, content=b"x").status_code == 422
    assert chat.http.put(url(chat, "/files/c"), params={"sha256": sha256.upper()}).status_code == 422
    absent = chat.http.put(url(chat, "/files/b"), params={"sha256": sha256}, headers={"If-None-Match": "*"})
    assert absent.status_code == 412


@pytest.mark.parametrize("name", ["Content-Digest", "Repr-Digest", "Digest"])
def test_a_body_that_is_not_what_its_digest_says(chat: Chat, name: str) -> None:
    digest = base64.b64encode(hashlib.sha256(b"right").digest()).decode()
    value = f"sha-256={digest}" if name == "Digest" else f"sha-256=:{digest}:"
    chat.put("before", b"x")
    wrong = chat.put("a", b"wrong", **{name: value})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_arguments")
    assert wrong.json()["expected_sha256"] == hashlib.sha256(b"right").hexdigest()
    assert chat.files() == ["before"]
    assert chat.put("a", b"right", **{name: value}).status_code == 201
    assert chat.put("a", b"right", **{name: "sha-512=:AAAA:"}).status_code == 422


# -- moves and deletions -------------------------------------------------------------------------------------------


def move(chat: Chat, source: str, target: str, status: int = 200, **fields: Any) -> Any:
    headers = fields.pop("headers", {})
    answer = chat.http.post(url(chat, "/moves"), json={"from": source, "to": target, **fields}, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_moves_reach_the_sandbox(chat: Chat) -> None:
    form(chat, {"a.txt": b"a", "d/x": b"x", "d/e/y": b"y"})
    chat.ok("x = 1")
    assert [f["path"] for f in move(chat, "a.txt", "new/b.txt")["files"]] == ["new/b.txt"]
    assert sorted(f["path"] for f in move(chat, "d", "outputs/d")["files"]) == ["outputs/d/e/y", "outputs/d/x"]
    seen = chat.ok("import os; print(x, os.path.exists('a.txt'), os.path.exists('d'), open('outputs/d/e/y').read())")
    assert seen["stdout"] == "1 False False y\n"
    assert contents(chat) == {"new/b.txt": b"a", "outputs/d/e/y": b"y", "outputs/d/x": b"x"}


def test_moves_that_are_refused(chat: Chat) -> None:
    form(chat, {"a": b"a", "b": b"b", "d/x": b"x"})
    before = contents(chat)
    assert move(chat, "none", "c", 404)["code"] == "not_found"
    assert move(chat, "a", "b", 412)["code"] == "precondition_failed"
    assert move(chat, "a", "d", 409)["code"] == "conflict"
    assert move(chat, "d", "d/e", 409)["code"] == "conflict"
    assert move(chat, "a", "b/c", 409)["code"] == "conflict"
    assert move(chat, "a", "outputs", 409)["code"] == "conflict"
    assert move(chat, "outputs", "c", 409)["code"] == "conflict"
    assert move(chat, "a", "c", 412, headers={"If-Match": f'"{"0" * 64}"'})["code"] == "precondition_failed"
    assert move(chat, "a", "c", 422, overwrite="yes")["code"] == "invalid_arguments"
    assert contents(chat) == before
    move(chat, "a", "b", overwrite=True)
    assert contents(chat) == {"b": b"a", "d/x": b"x"}


def test_folders_are_deleted_only_when_asked(chat: Chat) -> None:
    form(chat, {"d/x": b"x", "d/e/y": b"y", "da": b"z"})
    chat.ok("open('d/stray', 'w').write('s')")
    refused = chat.http.delete(url(chat, "/files/d"))
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert chat.http.delete(url(chat, "/files/d"), params={"recursive": "true"}).status_code == 204
    assert chat.files() == ["da"]
    assert chat.ok("import os; print(os.path.exists('d'))")["stdout"] == "False\n"


def test_links_are_listed_and_never_followed(chat: Chat) -> None:
    chat.ok("import os; open('a', 'w').write('a'); os.symlink('a', 'l'); os.symlink('/etc/passwd', 'out')")
    listed = {f["path"]: f for f in chat.http.get(url(chat)).json()["files"]}
    assert {path: (f["type"], f.get("target")) for path, f in listed.items()} == {
        "a": ("file", None), "l": ("link", "a"), "out": ("link", "/etc/passwd"),
    }  # fmt: skip
    for name in ("l", "out"):
        answer = chat.get(name)
        assert (answer.status_code, "symbolic link" in answer.json()["detail"]) == (404, True)
    assert chat.put("out", b"mine").status_code == 201
    assert chat.ok("print(os.path.islink('out'), open('out').read())")["stdout"] == "False mine\n"
    assert chat.http.delete(url(chat, "/files/l")).status_code == 204
    assert chat.files() == ["a", "out"]
