"""Files over HTTP: ranges, conditions, limits, and what cells see of them. Names: ``test_names``."""

from __future__ import annotations

import hashlib

from tests.support import events
from tests.support.runner import Chat


def test_ranges_and_conditions(chat: Chat) -> None:
    content = bytes(range(256)) * 10
    etag = chat.put("data.bin", content).headers["etag"]
    assert etag == f'"{hashlib.sha256(content).hexdigest()}"'
    part = chat.get("data.bin", Range="bytes=10-19")
    assert (part.status_code, part.content) == (206, content[10:20])
    assert part.headers["content-range"] == "bytes 10-19/2560"
    assert chat.get("data.bin", Range="bytes=-5").content == content[-5:]
    assert chat.get("data.bin", Range="bytes=2550-").content == content[2550:]
    assert chat.get("data.bin", Range="bytes=9999-").status_code == 416
    assert chat.get("data.bin", **{"If-None-Match": etag}).status_code == 304
    assert chat.put("data.bin", b"y", **{"If-None-Match": "*"}).status_code == 412
    assert chat.put("data.bin", b"y", **{"If-Match": f'"{"0" * 64}"'}).status_code == 412
    assert chat.put("data.bin", b"y", **{"If-Match": etag}).status_code == 200
    part = chat.put("data.bin", b"z", **{"Content-Range": "bytes 0-0/9"})
    assert (part.status_code, "Content-Range" in part.json()["detail"]) == (422, True)
    head = chat.http.head(f"/v1/conversations/{chat.id}/files/data.bin")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "1", b"")
    head = chat.http.head(f"/v1/conversations/{chat.id}/files/data.bin", headers={"Range": "bytes=5-"})
    assert (head.status_code, head.headers["content-length"]) == (200, "1")


def test_zero_bytes_and_large_files(chat: Chat) -> None:
    large = b"0123456789abcdef" * (100 << 16)
    assert chat.put("empty", b"").status_code == 201
    assert chat.put("large.bin", large).status_code == 201
    seen = chat.ok(
        "import hashlib, os; print(os.path.getsize('empty'), hashlib.sha256(open('large.bin','rb').read()).hexdigest())"
    )
    assert seen["stdout"].split() == ["0", hashlib.sha256(large).hexdigest()]
    made = chat.ok("open('copy.bin', 'wb').write(open('large.bin', 'rb').read()); None")
    assert made["files"][0]["size"] == len(large)
    assert hashlib.sha256(chat.get("copy.bin").content).hexdigest() == hashlib.sha256(large).hexdigest()


def test_too_large_is_refused_and_leaves_nothing(chat: Chat) -> None:
    def endless() -> object:
        while True:
            yield b"\0" * (1 << 20)

    url = f"/v1/conversations/{chat.id}/files/huge.bin"
    answer = chat.http.put(url, content=endless())  # type: ignore[arg-type]
    assert answer.status_code == 413
    assert answer.json()["code"] == "too_large"
    assert chat.http.put(f"/v1/conversations/{chat.id}/files/ok", content=b"x").status_code == 201
    assert chat.files() == ["ok"]


def test_a_folder_is_no_file_and_says_what_gives_it(chat: Chat) -> None:
    chat.put("folder/a.txt", b"x")
    answer = chat.get("folder")
    assert (answer.status_code, "archive?prefix=" in answer.json()["detail"]) == (404, True)


def test_listing_pages_by_prefix(chat: Chat) -> None:
    for number in range(5):
        chat.put(f"outputs/{number}.txt", b"x")
    chat.put("other.txt", b"x")
    url = f"/v1/conversations/{chat.id}/files"
    first = chat.http.get(url, params={"prefix": "outputs/", "limit": 3}).json()
    rest = chat.http.get(url, params={"prefix": "/workspace/outputs", "limit": 3, "after": first["next"]}).json()
    assert [entry["path"] for entry in first["files"] + rest["files"]] == [f"outputs/{n}.txt" for n in range(5)]
    assert rest["next"] is None


def test_deletion_reaches_the_sandbox_and_back(chat: Chat) -> None:
    chat.put("a.txt", b"a")
    chat.put("b.txt", b"b")
    chat.ok("import os; os.remove('a.txt')")
    assert chat.files() == ["b.txt"]
    assert chat.http.delete(f"/v1/conversations/{chat.id}/files/b.txt").status_code == 204
    assert chat.ok("print(os.path.exists('b.txt'))")["stdout"] == "False\n"
    assert chat.get("a.txt").status_code == 404


def test_both_names_of_the_workspace(chat: Chat) -> None:
    result = chat.ok("open('/work/outputs/x.txt', 'w').write('1'); print(open('/workspace/outputs/x.txt').read())")
    assert result["stdout"] == "1\n"
    assert [(f["path"], f["change"], f["kind"]) for f in result["files"]] == [
        ("outputs/x.txt", "created", "deliverable")
    ]


def test_a_touch_is_no_change_and_a_rewrite_is(chat: Chat) -> None:
    chat.ok("open('x.txt', 'w').write('1')")
    touched = chat.ok("import os; os.utime('x.txt')")
    rewritten = chat.ok(
        "s = os.stat('x.txt'); open('x.txt', 'w').write('2'); os.utime('x.txt', ns=(s.st_atime_ns, s.st_mtime_ns))"
    )
    assert touched["files"] == []
    assert touched["version"] == 1
    assert [f["change"] for f in rewritten["files"]] == ["modified"]


def test_upload_during_a_run_keeps_its_name(chat: Chat) -> None:
    code = "import time\ntry:\n print('on')\n time.sleep(100)\nexcept KeyboardInterrupt: pass\n"
    code += "open('same.txt', 'w').write('run')"
    with events.executing(chat, code) as answer:
        told = events.read(answer)
        assert any(name == "stdout" for name, _ in told)
        assert chat.put("same.txt", b"upload").status_code == 201
        events.interrupt(chat, answer.headers["x-execution-id"])  # only now it writes
        (result,) = [body["result"] for name, body in told if name == "done"]
    assert chat.get("same.txt").content == b"upload"
    (renamed,) = [f for f in result["files"] if f.get("renamed_from") == "same.txt"]
    assert chat.get(renamed["path"]).content == b"run"
    assert chat.ok("print(open('same.txt').read())")["stdout"] == "upload\n"


def test_a_form_is_not_stored_as_a_file(chat: Chat) -> None:
    url = f"/v1/conversations/{chat.id}/files/a.txt"
    answer = chat.http.put(url, files={"file": ("a.txt", b"x")})
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert "--data-binary" in answer.json()["detail"]
    assert chat.http.get(f"/v1/conversations/{chat.id}").status_code == 404
    kind = "application/x-www-form-urlencoded"  # what curl -d and --data-binary say of any bytes
    assert chat.put("a.txt", b"x", **{"Content-Type": kind}).status_code == 201


def test_refused_uploads_make_no_conversation(chat: Chat) -> None:
    cases: tuple[tuple[str, dict[str, str], int], ...] = (
        ("a/../b", {}, 422),
        ("a", {"Content-Digest": f"sha-256=:{'A' * 43}=:"}, 422),
        ("a", {"If-Match": "*"}, 412),
        ("a", {"If-None-Match": '"x"'}, 422),
        ("outputs", {}, 409),
        ("a?sha256=" + "0" * 64, {"Content-Length": "0"}, 404),
        ("a?sha256=x", {}, 404),
    )
    for name, headers, status in cases:
        url = f"/v1/conversations/{chat.id}/files/{name.replace('..', '%2E%2E')}"
        answer = chat.http.put(url, content=b"" if "sha256" in name else b"x", headers=headers)
        assert answer.status_code == status, (name, headers, answer.text)
        assert chat.http.get(f"/v1/conversations/{chat.id}").status_code == 404, (name, headers)


def test_refusals_name_the_way_out(chat: Chat) -> None:
    base = f"/v1/conversations/{chat.id}"
    for name in ("d/a", "b"):
        chat.put(name, b"x")
    taken = chat.http.post(f"{base}/moves", json={"from": "d/a", "to": "b"})
    assert (taken.status_code, '"overwrite": true' in taken.json()["detail"]) == (412, True)
    full = chat.http.delete(f"{base}/files/d")
    assert (full.status_code, "?recursive=true" in full.json()["detail"]) == (409, True)
    deep = chat.put("a/" * 64 + "b", b"x")
    assert (deep.status_code, "more than 63 folders" in deep.json()["detail"]) == (422, True)
    assert chat.put("a/" * 63 + "b", b"x").status_code == 201
    run = chat.ok("print(1)")["execution_id"]
    whole = chat.http.get(f"{base}/executions/{run}/stdout")
    assert (whole.status_code, "holds all of it" in whole.json()["detail"]) == (404, True)
