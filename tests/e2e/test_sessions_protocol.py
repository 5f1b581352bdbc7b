"""The eleven routes as the sessions protocol has them: fields, defaults, statuses, texts, limits, path rules."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.support.runner import Runner
from tests.support.sessions import GONE, Session, b64, detail
from tests.support.waiting import until

NOBODY = "0" * 32


@pytest.fixture
def session(http: httpx.Client) -> Iterator[Session]:
    made = Session.new(http)
    yield made
    made.delete(discard=True)


@pytest.mark.parametrize("body", [None, b"null", b"{}", b'{"storage":null,"idle_ttl_sec":null,"archive_key":null}'])
def test_create_needs_no_body(http: httpx.Client, body: bytes | None) -> None:
    headers = {"Content-Type": "application/json"} if body else {}
    response = http.post("/sessions", content=body, headers=headers)
    assert response.status_code == 200
    session = response.json()["session_id"]
    assert len(session) == 32
    assert set(session) <= set("0123456789abcdef")
    assert http.delete(f"/sessions/{session}").json()["ok"] is True


def test_exec_answers_streams_code_and_files(session: Session) -> None:
    code = """
import os, sys
print("out")
print("err", file=sys.stderr)
open("outputs/b.csv", "w").write("a,b")
open("/workspace/outputs/a.docx", "wb").write(b"\\x00\\xff")
print(os.getcwd())
"""
    body = session.exec(code)
    assert (body["stdout"], body["stderr"], body["exit_code"]) == ("out\n/workspace\n", "err\n", 0)
    word = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    assert [(f["name"], f["mime_type"], f["data_base64"]) for f in body["files"]] == [
        ("a.docx", word, b64(b"\x00\xff")),
        ("b.csv", "text/csv", b64(b"a,b")),
    ]
    assert session.exec("pass")["files"] == []


def test_a_failing_run_is_a_result(session: Session) -> None:
    failed = session.exec("print('before')\n1 / 0")
    assert (failed["exit_code"], failed["stdout"]) == (1, "before\n")
    assert failed["stderr"].endswith("ZeroDivisionError: division by zero\n")
    assert session.exec("raise SystemExit(7)")["exit_code"] == 7
    assert session.exec("import os; os._exit(9)")["exit_code"] == 9


def test_a_timeout_is_a_result(session: Session) -> None:
    body = session.exec("print('before', flush=True)\nimport time\ntime.sleep(60)", timeout_ms=-5)
    assert (body["exit_code"], body["stdout"]) == (124, "before\n")
    assert body["stderr"] == "\n[sandbox] execution exceeded 1.000s and was killed"


@pytest.mark.parametrize("path", ["/exec", "/files/get", "/files/list", "/files"])
def test_a_session_that_is_not_there(http: httpx.Client, path: str) -> None:
    fields = {"code": "1", "path": "uploads/a", "data_base64": ""}
    unknown = http.post(path, json={"session_id": NOBODY, **fields})
    assert unknown.status_code == 404
    assert unknown.json()["detail"] == GONE["detail"]
    for bad in ("", "x", NOBODY.replace("0", "A"), NOBODY + "0", NOBODY + "\n"):
        assert detail(http.post(path, json={"session_id": bad, **fields})) == (400, "invalid session_id")


def test_schema_errors_list_places(session: Session) -> None:
    for path in ("/exec", "/files", "/files/get", "/files/list", "/files/reset-inputs", "/storage/put", "/storage/gc"):
        response = session.http.post(path, json={})
        assert response.status_code == 422, path
        assert all({"loc", "msg", "type"} <= item.keys() for item in response.json()["detail"]), path
    assert session.post("/exec", code=5).status_code == 422


def test_code_is_bounded_in_characters_and_in_bytes(session: Session) -> None:
    limit = 1 << 20
    assert session.out("#" * (limit - 10) + "\nprint(1)") == "1\n"
    assert session.post("/exec", code="#" * (limit + 1)).status_code == 422
    assert detail(session.post("/exec", code="# " + "é" * (limit // 2))) == (413, "code too large")


def test_files_are_written_and_read(session: Session) -> None:
    written = session.put("uploads/deep/er/x.bin", b"\x00\x01")
    assert (written.status_code, written.json()["ok"]) == (200, True)
    assert session.get("/workspace/uploads/deep/er/x.bin") == b"\x00\x01"
    assert session.put("uploads/deep/er/x.bin", b"").status_code == 200
    assert session.post("/files/get", path="uploads/deep/er/x.bin").json() == {"data_base64": ""}
    assert session.out("print(open('uploads/deep/er/x.bin').read())") == "\n"
    assert session.put("uploads/deep/../y.txt", b"y").status_code == 200
    assert session.get("./uploads/y.txt") == b"y"
    assert session.get("/work/uploads/y.txt") == b"y"
    assert detail(session.post("/files/get", path="uploads/none")) == (404, "file not found")
    assert detail(session.post("/files/get", path="uploads/deep")) == (404, "file not found")


@pytest.mark.parametrize("data", ["a", "YQ=", "YQ", "Y Q==", "YQ==\n", "data:text/plain;base64,YQ==", "ÿQ==", "_-8="])
def test_base64_is_strict(session: Session, data: str) -> None:
    assert detail(session.post("/files", path="uploads/a", data_base64=data)) == (400, "invalid base64")


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "/workspace", "/workspace/", "..", "../x", "/etc/passwd", "/workspace/../etc/x", "/workspacex/a",
        "a\x00b", "/", "//workspace/../x", "a/../../b", "/tmp/x",
    ],
)  # fmt: skip
def test_paths_outside_are_refused(session: Session, path: str) -> None:
    """Weakness 21: the empty path, the folder itself and a NUL are the caller's fault, not the service's."""
    for response in (session.put(path, b"x"), session.post("/files/get", path=path)):
        assert detail(response) == (400, "path must be under /workspace")


def test_names_keep_their_spaces(session: Session) -> None:
    """Weakness 21: a space at the end of a name is part of it."""
    assert session.put("uploads/a ", b"spaced").status_code == 200
    assert detail(session.post("/files/get", path="uploads/a")) == (404, "file not found")
    assert session.get("uploads/a ") == b"spaced"
    assert session.out("import os; print(os.listdir('uploads'))") == "['a ']\n"


def test_files_that_cannot_be_written(session: Session) -> None:
    assert session.put("uploads/file", b"x").status_code == 200
    status, text = detail(session.put("uploads/file/below", b"x"))
    assert (status, text.split(":")[0]) == (500, "mkdir failed")
    for folder in ("uploads", "outputs"):
        status, text = detail(session.put(folder, b"x"))
        assert (status, text.split(":")[0]) == (500, "write failed")


def test_the_list_is_sorted_bounded_and_of_files_alone(session: Session) -> None:
    session.exec(
        "import os\n"
        "os.makedirs('a/b/c/d/e/f')\n"
        "open('a/b/c/d/e/six', 'w').write('123456'); open('a/b/c/d/e/f/seven', 'w').write('1')\n"
        "os.symlink('a/b/c/d/e/six', 'link')\n"
        "for n in range(600): open(f'outputs/{n:03}', 'w').write('x')\n"
    )
    body = session.post("/files/list").json()
    listed = [(item["path"], item["size"]) for item in body["files"]]
    assert len(listed) == 500
    assert listed == sorted(listed)
    assert listed[0] == ("a/b/c/d/e/six", 6)
    assert not {"link", "a/b/c/d/e/f/seven"} & {path for path, _ in listed}


def test_reset_takes_uploads_and_skills_alone(session: Session) -> None:
    for folder in ("uploads", "skills", "downloads", "outputs"):
        assert session.put(f"{folder}/a/b.txt", b"x").status_code == 200
    assert session.post("/files/reset-inputs").json() == {"ok": True, "session_gone": False}
    assert session.paths() == ["downloads/a/b.txt", "outputs/a/b.txt"]
    assert session.out("import os; print(os.listdir('uploads'), os.listdir('skills'))") == "[] []\n"
    gone = session.http.post("/files/reset-inputs", json={"session_id": NOBODY})
    assert (gone.status_code, gone.json()) == (200, {"ok": False, "session_gone": True})


def test_delete_always_answers_ok(http: httpx.Client) -> None:
    """Weakness 22: whether there was such a session is told beside it."""
    session = Session.new(http)
    assert session.delete() == {"ok": True, "known": True, "archived": None, "archive_error": None}
    assert session.delete() == {"ok": True, "known": False, "archived": None, "archive_error": None}
    assert session.post("/exec", code="1").json()["detail"] == GONE["detail"]
    assert http.delete("/sessions/nonsense").status_code == 400
    assert detail(http.delete("/sessions/nonsense")) == (400, "invalid session_id")


def test_storage_without_storage(http: httpx.Client) -> None:
    put = {"key": "a", "data_base64": "YQ==", "storage": {}}
    assert detail(http.post("/storage/put", json=put)) == (400, "storage backend not configured")
    unknown = {**put, "storage": {"provider": "ftp"}}
    assert detail(http.post("/storage/put", json=unknown)) == (400, "unsupported storage provider: ftp")
    assert detail(http.post("/storage/delete", json={"key": "a", "storage": {}}))[0] == 400
    nothing = {"deleted": 0, "scanned": 0, "freed_bytes": 0}
    assert http.post("/storage/gc", json={"max_age_seconds": 5}).json() == nothing
    assert http.post("/storage/gc", json={"storage": {"provider": "s3"}, "max_age_seconds": 5}).json() == nothing


def test_a_key_is_needed(runner: Runner) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": runner.key}):
        for path in ("/sessions", "/exec", "/files", "/storage/gc"):
            response = httpx.post(runner.url + path, json={}, headers=headers)
            assert (response.status_code, response.json()) == (401, {"error": "unauthorized"})


def test_every_answer_has_an_id(runner: Runner, http: httpx.Client) -> None:
    """Weakness 70: requests can be told apart in the log."""
    for response in (http.post("/sessions"), http.post("/exec", json={}), httpx.post(f"{runner.url}/exec")):
        assert response.headers["x-request-id"]
    given = http.post("/files/list", json={"session_id": NOBODY}, headers={"X-Request-Id": "turn-7"})
    assert given.headers["x-request-id"] == "turn-7"
    until(lambda: "turn-7" in runner.log.read_text(encoding="utf-8"), "the request is in the log")


def raw(runner: Runner, head: str, body: bytes = b"") -> bytes:
    """What the service answers to bytes as they are."""
    with socket.create_connection(("127.0.0.1", runner.port), timeout=20) as sock:
        sock.sendall(head.replace("\n", "\r\n").encode("latin-1") + b"\r\n\r\n" + body)
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
        return answer


def test_the_declared_length_is_judged_before_the_key(runner: Runner) -> None:
    for path, limit in (("/exec", 58_720_256), ("/storage/put", 314_572_800)):
        answer = raw(runner, f"POST {path} HTTP/1.1\nHost: x\nConnection: close\nContent-Length: {limit + 1}")
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert f'{{"error":"request body exceeds {limit} bytes"}}'.encode() in answer
        assert b"x-request-id" in answer.lower()
    assert raw(runner, "POST /exec HTTP/1.1\nHost: x\nConnection: close\nContent-Length: nine").startswith(
        b"HTTP/1.1 400 "
    )


def test_a_key_outside_ascii_is_a_wrong_key(runner: Runner) -> None:
    """Weakness 23."""
    answer = raw(runner, "POST /exec HTTP/1.1\nHost: x\nConnection: close\nAuthorization: Bearer schl\xfcssel")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b'{"error":"unauthorized"}' in answer


def test_forty_mebibytes_are_taken_and_no_more(session: Session) -> None:
    whole = b64(bytes(40 << 20))
    assert len(whole) == 55_924_056
    assert session.post("/files", path="uploads/big", data_base64=whole).status_code == 200
    assert detail(session.post("/files", path="uploads/big", data_base64=whole[:-4] + "AAAA" * 2)) == (
        413,
        "file too large",
    )
    got = session.post("/files/get", path="uploads/big").json()["data_base64"]
    assert base64.b64decode(got) == bytes(40 << 20)
