"""Sizes and counts of section 3, by their names of section 4.1, at the limit and one beyond it."""

from __future__ import annotations

import base64
import json

import httpx
import pytest

from tests.conformance.kit import Place
from tests.conformance.sessions import shapes
from tests.conformance.sessions.client import SandboxError, SessionsClient
from tests.conformance.sessions.conftest import LIMIT
from tests.conformance.shapes import hold


def test_a_file_at_the_limit_and_one_byte_beyond(small: SessionsClient, narrow: str) -> None:
    small.put(narrow, "a.bin", b"x" * LIMIT)
    assert small.get(narrow, "a.bin") == b"x" * LIMIT
    for length in (LIMIT + 1, LIMIT + 3000):
        with pytest.raises(SandboxError) as refused:
            small.put(narrow, "b.bin", b"x" * length)
        assert (refused.value.status, refused.value.detail) == (413, "file too large")
    assert "b.bin" not in small.list(narrow)


def test_length_is_judged_before_alphabet(small: SessionsClient, narrow: str) -> None:
    body = {"session_id": narrow, "path": "a", "data_base64": "?" * (-(-LIMIT // 3) * 4 + 4)}
    answer = small.send("POST", "/files", body)
    assert (answer.status_code, answer.json()["detail"]) == (413, "file too large")


def test_code_is_counted_in_characters_and_then_in_bytes(small: SessionsClient, narrow: str) -> None:
    assert small.exec(narrow, "#" * 2000).exit_code == 0
    beyond = small.send("POST", "/exec", {"session_id": narrow, "code": "#" * 2001})
    assert beyond.status_code == 422, beyond.text
    hold(shapes.INVALID, beyond.json())
    with pytest.raises(SandboxError) as refused:
        small.exec(narrow, "#" + "é" * 1500)
    assert (refused.value.status, refused.value.detail) == (413, "code too large")


def test_a_body_in_chunks_is_bounded_too(tight: Place) -> None:
    body = json.dumps({"session_id": "0" * 32, "code": "#" * 60000}).encode()
    with httpx.Client(base_url=tight.url, headers={"Authorization": f"Bearer {tight.key}"}, timeout=30) as http:
        answer = http.post("/exec", content=iter([body[:30000], body[30000:]]))
    assert answer.status_code == 413, answer.text
    assert answer.json()["error"] == "request body exceeds 20000 bytes"


def test_limits_of_a_run_are_clamped(small: SessionsClient, narrow: str) -> None:
    code = "import time; print('begun', flush=True); time.sleep(60)"
    for asked, effective in ((-5, 1), (1, 1), (600_000, 6), (0, 2)):
        answer = small.send("POST", "/exec", {"session_id": narrow, "code": code, "timeout_ms": asked})
        ran = hold(shapes.EXEC, answer.json())
        assert ran["exit_code"] == 124
        assert f"[sandbox] execution exceeded {effective:.3f}s and was killed" in ran["stderr"]
        assert ran["stdout"] == "begun\n"


def test_artifacts_beyond_the_caps_are_named_and_stay(small: SessionsClient, narrow: str) -> None:
    made = "for n in range(5): open(f'/workspace/outputs/{n}.txt', 'w').write('x' * 100)"
    ran = small.exec(narrow, made)
    assert [name for name, _, _ in ran.files] == ["0.txt", "1.txt", "2.txt"]
    assert "[sandbox] skipped 2 output file(s) because artifact limits are " in ran.stderr
    assert small.get(narrow, "outputs/4.txt") == b"x" * 100
    large = small.exec(narrow, "open('/workspace/outputs/big.txt', 'w').write('x' * 1001)")
    assert not large.files
    assert "[sandbox] skipped 1 output file(s) because artifact limits are " in large.stderr
    assert small.get(narrow, "outputs/big.txt") == b"x" * 1001
    total = small.exec(narrow, "for n in 'abc': open(f'/workspace/outputs/{n}.bin', 'w').write('x' * 999)")
    assert sum(len(data) for _, _, data in total.files) <= 2500
    assert len(total.files) == 2


def test_streams_keep_their_head_and_the_end_of_an_error(client: SessionsClient, session: str) -> None:
    ran = client.exec(session, "print('head'); print('x' * 200000); raise ValueError('the very end')")
    assert ran.exit_code != 0
    assert ran.stdout.startswith("head\n")
    assert "[truncated, stdout exceeded 32KB]" in ran.stdout
    noisy = client.exec(session, "import sys; sys.stderr.write('y' * 200000); raise ValueError('the very end')")
    assert "[truncated, stderr exceeded 32KB]" in noisy.stderr
    assert "ValueError: the very end" in noisy.stderr
    for stream in (ran.stdout, noisy.stderr):
        assert len(stream.encode()) <= 32768 + 200


def test_a_stream_at_the_limit_is_whole(client: SessionsClient, session: str) -> None:
    ran = client.exec(session, "import sys; sys.stdout.write('z' * 32768)")
    assert ran.stdout == "z" * 32768


def test_a_listing_has_500_files_of_six_levels_in_order(client: SessionsClient, session: str) -> None:
    made = "import os\nos.makedirs('/workspace/a/b/c/d/e/f')\nopen('/workspace/a/b/c/d/e/six', 'w')\n"
    made += "open('/workspace/a/b/c/d/e/f/seven', 'w')\nos.symlink('six', '/workspace/a/b/c/d/e/link')"
    assert client.exec(session, made).exit_code == 0
    assert list(client.list(session)) == ["a/b/c/d/e/six"]
    client.exec(session, "for n in range(600): open(f'/workspace/n{n:03}', 'w').write('x' * n)")
    listed = client.list(session)
    assert len(listed) == 500
    assert list(listed) == sorted(listed)
    assert listed["n007"] == 7


def test_a_large_file_comes_back_whole(client: SessionsClient, session: str) -> None:
    data = bytes(range(256)) * (12 << 12)
    client.put(session, "big/data.bin", data)
    assert client.get(session, "big/data.bin") == data
    assert client.get(session, "/workspace/big/data.bin") == data


def test_the_default_limit_of_an_upload(client: SessionsClient, session: str) -> None:
    beyond = base64.b64encode(b"x" * (40 << 20)).decode() + "AAAA"
    answer = client.send("POST", "/files", {"session_id": session, "path": "a", "data_base64": beyond})
    assert (answer.status_code, answer.json()["detail"]) == (413, "file too large")
