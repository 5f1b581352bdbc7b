"""Section 7: what a path may name, and that links of the sandbox's own lead nowhere else."""

from __future__ import annotations

import pytest

from tests.conformance.sessions.client import SandboxError, SessionsClient

UNDER = "path must be under /workspace"
RESOLVES = "path resolves outside /workspace"


SPELLINGS = {
    "a.txt": "a.txt",
    "/workspace/b.txt": "b.txt",
    "deep/er/c.txt": "deep/er/c.txt",
    "x/../d.txt": "d.txt",
    "./e.txt": "e.txt",
    "/workspace//f//g.txt": "f/g.txt",
    "名 前/файл.txt": "名 前/файл.txt",
    "quote'\"$(id)`id`.txt": "quote'\"$(id)`id`.txt",
    "-rf": "-rf",
    "trailing ": "trailing ",
}


def test_spellings_of_a_path(client: SessionsClient, session: str) -> None:
    for written in SPELLINGS:
        client.put(session, written, b"old")
        client.put(session, written, b"new bytes")
        assert client.get(session, written) == b"new bytes"
    assert client.list(session) == dict.fromkeys(sorted(SPELLINGS.values()), 9)
    read = f"print({{open(path).read() for path in {list(SPELLINGS.values())!r}}})"
    assert client.exec(session, read).stdout == "{'new bytes'}\n"


def test_an_empty_file_is_an_empty_string(client: SessionsClient, session: str) -> None:
    client.put(session, "empty", b"")
    assert client.get(session, "empty") == b""
    assert client.list(session) == {"empty": 0}


def test_links_that_leave_the_workspace(client: SessionsClient, session: str) -> None:
    client.exec(session, "import os\nos.symlink('/etc', 'out')\nos.symlink('/etc/passwd', 'file')\n"
                         "os.mkdir('real')\nos.symlink('real', 'inside')")  # fmt: skip
    for path in ("out/x", "file", "out/passwd"):
        with pytest.raises(SandboxError) as refused:
            client.put(session, path, b"x")
        assert (refused.value.status, refused.value.detail) == (400, RESOLVES)
        with pytest.raises(SandboxError) as refused:
            client.get(session, path)
        assert (refused.value.status, refused.value.detail) == (400, RESOLVES)
    client.put(session, "inside/x", b"in")
    assert client.get(session, "real/x") == b"in"
    assert client.get(session, "inside/x") == b"in"


def test_no_folders_are_made_behind_a_link_that_leaves(client: SessionsClient, session: str) -> None:
    client.exec(session, "import os\nos.symlink('/tmp', 'out')")
    with pytest.raises(SandboxError):
        client.put(session, "out/made/by/write", b"x")
    assert client.exec(session, "import os; print(os.path.exists('/tmp/made'))").stdout == "False\n"


def test_odd_paths_are_the_callers_fault(client: SessionsClient, session: str) -> None:
    writes, reads = ("/files", {"data_base64": "YQ=="}), ("/files/get", dict[str, str]())
    odd = ("", ".", "/workspace", "/workspace/", "a\0b")
    for path, (route, more) in ((path, call) for path in odd for call in (writes, reads)):
        answer = client.send("POST", route, {"session_id": session, "path": path, **more})
        assert 400 <= answer.status_code < 500, (route, answer.status_code, answer.text)
        assert isinstance(answer.json()["detail"], str)
    assert client.exec(session, "print('well')").stdout == "well\n"


def test_a_folder_is_not_written_over(client: SessionsClient, session: str) -> None:
    with pytest.raises(SandboxError) as refused:
        client.put(session, "uploads", b"x")
    assert refused.value.status == 500
    assert str(refused.value.detail).startswith("write failed: ")
