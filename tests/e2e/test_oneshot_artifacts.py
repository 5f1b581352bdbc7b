"""Which files a run gives back, under which names, and what becomes of long output."""

from __future__ import annotations

import time

import pytest

from tests.support.oneshot import OneShot, files_of, oneshot, open_service

__all__ = ["oneshot", "open_service"]


def test_new_files_with_name_size_type_and_bytes(oneshot: OneShot) -> None:
    answer = oneshot.run("open('a.csv', 'wb').write(b'1;2\\r\\n\\xff'); open('b.bin', 'wb').write(bytes(3))")
    one, other = answer["artifacts"]
    assert one == {"name": "a.csv", "size": 6, "mime": "text/csv", "content_b64": "MTsyDQr/"}
    assert other == {"name": "b.bin", "size": 3, "mime": "application/octet-stream", "content_b64": "AAAA"}


def test_flat_names_and_their_paths(oneshot: OneShot) -> None:
    code = "mkdir -p a/b; echo 1 > a/b.txt; echo 2 > a-b.txt; echo 3 > a/b/c; echo 4 > in-x; mkdir in; echo 5 > in/x"
    answer = oneshot.run(code, "bash", {"in-y": b"y"})
    shown = [(each["name"], each.get("path")) for each in answer["artifacts"]]
    assert shown == [
        ("a-b.txt", None),
        ("in-x", None),
        ("a-b-2.txt", "a/b.txt"),
        ("a-b-c", "a/b/c"),
        ("in-x-2", "in/x"),
    ]


def test_names_of_inputs_count_as_taken(oneshot: OneShot) -> None:
    answer = oneshot.run("mkdir in; echo 1 > in/x.txt", "bash", {"in-x.txt": b"mine"})
    assert [(each["name"], each["path"]) for each in answer["artifacts"]] == [("in-x-2.txt", "in/x.txt")]


def test_an_output_that_has_the_name_of_an_input_comes_back(oneshot: OneShot) -> None:
    """Trap 10: it was changed, so it is returned; one that is as it was is not."""
    files = {"x.pdf": b"before", "y.pdf": b"same", "z.pdf": b"same"}
    answer = oneshot.run("printf after > x.pdf; printf same > y.pdf", "bash", files)
    assert files_of(answer) == {"x.pdf": b"after"}


def test_empty_files_are_told_of(oneshot: OneShot) -> None:
    """Trap 12: an empty file differs from none."""
    answer = oneshot.run("mkdir d; touch empty.txt d/empty; echo 1 > full", "bash")
    assert files_of(answer) == {"full": b"1\n"}
    assert answer["empty_files"] == ["empty.txt", "d/empty"]
    assert "empty_files" not in oneshot.run("pass")


def test_what_is_passed_over(oneshot: OneShot) -> None:
    code = """
    mkdir -p .cache node_modules __pycache__ venv a/site-packages 1/2/3/4/5/6/7/8/9
    for d in .cache node_modules __pycache__ venv a/site-packages 1/2/3/4/5/6/7/8/9; do echo 1 > $d/f; done
    echo 1 > .env; echo 1 > 1/2/3/4/5/6/7/8/f; ln -s .env link; mkfifo pipe; ln -s /etc/passwd out
    """
    assert set(files_of(oneshot.run(code, "bash"))) == {".env", "1-2-3-4-5-6-7-8-f"}


def test_65_files(oneshot: OneShot) -> None:
    answer = oneshot.run("for n in $(seq -w 65); do echo $n > f$n; done", "bash")
    assert answer["artifacts_truncated"] is True
    assert list(files_of(answer)) == [f"f{number:02}" for number in range(1, 65)]
    answer = oneshot.run("for n in $(seq -w 64); do echo $n > f$n; done", "bash")
    assert answer["artifacts_truncated"] is False
    assert len(answer["artifacts"]) == 64


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_long_output_is_shortened_and_a_file(oneshot: OneShot, stream: str) -> None:
    answer = oneshot.run(f"import sys\nfor n in range(30_000): print('line', n, file=sys.{stream})")
    whole = "".join(f"line {n}\n" for n in range(30_000))
    assert files_of(answer) == {f"{stream}.txt": whole.encode()}
    text = answer[stream]
    assert answer["output_truncated"] is True
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 29999\n")
    assert f"{stream}.txt" in text
    assert 64 << 10 <= len(text) <= (64 << 10) + 200
    head = text.index("bytes left out")
    assert 0.55 < head / len(text) < 0.65


def test_output_between_32_and_64_kib_is_whole_and_a_file(oneshot: OneShot) -> None:
    answer = oneshot.run("print('é' * 20_000, end='')")
    assert answer["stdout"] == "é" * 20_000
    assert answer["output_truncated"] is False
    assert files_of(answer) == {"stdout.txt": ("é" * 20_000).encode()}
    assert oneshot.run("print('x' * 32_000)")["artifacts"] == []


def test_a_flood_of_output_is_bounded(oneshot: OneShot) -> None:
    answer = oneshot.run("head -c 30000000 /dev/zero | tr '\\0' x", "bash")
    assert answer["output_truncated"] is True
    assert len(answer["stdout"]) < 66_000
    assert len(files_of(answer)["stdout.txt"]) == 16 << 20


def test_large_output_overwrites_a_file_of_that_name_and_is_there_in_the_next_run(oneshot: OneShot) -> None:
    answer = oneshot.run("open('stdout.txt', 'w').write('mine'); print('x' * 40_000)", keep_alive=True)
    assert files_of(answer)["stdout.txt"] == b"x" * 40_000 + b"\n"
    size = "import os; print(os.path.getsize('stdout.txt'))"
    assert oneshot.out(size, container_id=answer["container_id"]) == "40001\n"


def test_two_files_of_25_mib_come_within_seconds(oneshot: OneShot) -> None:
    """Trap 6: each took the present runner 80 s. Trap 5: what is too large is not carried at all, and named."""
    began = time.monotonic()
    answer = oneshot.run("import os\nfor n in 'ab': open(n, 'wb').write(os.urandom(25 << 20))")
    assert time.monotonic() - began < 40
    assert [len(content) for content in files_of(answer).values()] == [25 << 20] * 2


def test_a_file_beyond_the_limit_is_named_and_not_sent(oneshot: OneShot) -> None:
    answer = oneshot.run("truncate -s 65M large; echo 1 > small", "bash")
    assert files_of(answer) == {"small": b"1\n"}
    assert answer["skipped_files"] == ["large"]


def test_files_of_every_kind_have_their_type(oneshot: OneShot) -> None:
    known = {
        "pdf": "application/pdf", "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif",
        "svg": "image/svg+xml", "webp": "image/webp", "txt": "text/plain", "md": "text/markdown", "csv": "text/csv",
        "json": "application/json", "html": "text/html", "xml": "application/xml", "zip": "application/zip",
        "mp4": "video/mp4", "mp3": "audio/mpeg", "wav": "audio/wav", "odt": "application/octet-stream",
    }  # fmt: skip
    answer = oneshot.run(f"for e in {' '.join(known)}; do echo 1 > f.$e; done", "bash")
    assert {each["name"].partition(".")[2]: each["mime"] for each in answer["artifacts"]} == known
