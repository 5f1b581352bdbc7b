"""What the protocol's present runner lacks or does slowly. Weaknesses 24 to 40 and 56."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.runner import Runner, running
from tests.support.sessions import Session, b64
from tests.support.waiting import aside, until


@pytest.fixture
def session(http: httpx.Client) -> Iterator[Session]:
    made = Session.new(http)
    yield made
    made.delete(discard=True)


def test_events_as_they_happen_in_the_same_interpreter(session: Session) -> None:
    """Weakness 24: a session is a conversation of `/v1`, which streams; `/exec` is as it was."""
    session.exec("x = 5")
    headers = {"Accept": "text/event-stream"}
    url, body = f"{session.conversation}/execute", {"code": "print(x + 1)"}
    with session.http.stream("POST", url, json=body, headers=headers) as answer:
        kinds = [line[7:] for line in answer.iter_lines() if line.startswith("event: ")]
    assert kinds == ["started", "stdout", "done"]
    assert session.out("print(x)") == "5\n"


def test_a_caller_who_leaves_ends_its_run(runner: Runner, session: Session) -> None:
    """Weakness 25: neither the session nor a place is held by code that nobody waits for."""
    session.exec("x = 1")
    with runner.client() as impatient, pytest.raises(httpx.ReadTimeout):
        code = "import time\nopen('/workspace/outputs/begun', 'w').write('1')\ntime.sleep(500)"
        impatient.post("/exec", json={"session_id": session.id, "code": code}, timeout=3)
    after = session.exec("print(x)")
    assert (after["stdout"], after["interpreter"]) == ("1\n", "kept")
    assert session.paths() == ["outputs/begun"]


def test_a_caller_who_leaves_while_it_waits_has_run_nothing(runner: Runner, session: Session) -> None:
    """Weaknesses 25 and 38: what was given up is not run later."""
    session.exec("n = 0")
    first = aside(lambda: session.exec("import time; time.sleep(4)"))
    until(lambda: session.http.get(session.conversation).json()["live"], "there is a sandbox")
    with runner.client() as impatient, pytest.raises(httpx.ReadTimeout):
        impatient.post("/exec", json={"session_id": session.id, "code": "n += 1"}, timeout=1)
    first.result(60)
    assert session.out("print(n)") == "0\n"


def test_a_run_can_be_stopped_by_another_call(session: Session) -> None:
    """Weakness 25: a cancel that keeps the interpreter."""
    session.exec("x = 1")
    going_on = aside(lambda: session.exec("import time; time.sleep(500)"))
    stop = f"{session.conversation}/interrupt"
    until(lambda: session.http.post(stop).json()["interrupted"], "it was stopped")
    stopped = going_on.result(60)
    assert (stopped["outcome"], stopped["exit_code"]) == ("interrupted", 130)
    assert session.out("print(x)") == "1\n"


def test_input_environment_and_shell(session: Session) -> None:
    """Weakness 26."""
    assert session.out("print(input())", stdin="typed\n") == "typed\n"
    assert session.out("import os; print(os.environ['NAME'])", env={"NAME": "value"}) == "value\n"
    assert session.out("import os; print('NAME' in os.environ)") == "False\n"
    assert session.out("echo $((6 * 7))", language="bash") == "42\n"
    assert session.exec("exit 3", language="bash")["exit_code"] == 3


def test_values_figures_and_errors_are_data(session: Session) -> None:
    """Weakness 27."""
    body = session.exec("import matplotlib.pyplot as plt\nplt.plot([1, 2])\n6 * 7")
    assert {"text/plain": "42"} in [result["data"] for result in body["results"]]
    (figure,) = [result["data"]["image/png"] for result in body["results"] if "image/png" in result["data"]]
    assert session.http.get(figure).content.startswith(b"\x89PNG")
    assert body["duration_ms"] >= 0
    failed = session.exec("ok = 1\nnone.x")
    assert (failed["error"]["name"], failed["error"]["line"]) == ("NameError", 2)


def test_files_of_one_name_are_told_apart(session: Session) -> None:
    """Weakness 28: path, size, hash and what happened to each."""
    body = session.exec(
        "import os\nfor d in ('d1', 'd2'):\n    os.makedirs(f'outputs/{d}')\n"
        "    open(f'outputs/{d}/r.csv', 'w').write(d)"
    )
    assert [(f["name"], f["path"], f["size"], f["change"]) for f in body["files"]] == [
        ("r.csv", "outputs/d1/r.csv", 2, "created"),
        ("r.csv", "outputs/d2/r.csv", 2, "created"),
    ]
    assert body["files"][0]["sha256"] == hashlib.sha256(b"d1").hexdigest()
    again = session.exec("open('outputs/d1/r.csv', 'w').write('xx')")
    assert [(f["path"], f["change"]) for f in again["files"]] == [("outputs/d1/r.csv", "modified")]


def test_odd_names_and_rewrites_within_a_tick(session: Session) -> None:
    """Weakness 29: tabs and newlines are names, and a rewrite of one size and time is a change."""
    names = ["tab\there", "line\nbreak", "quo'te \"s", "émile 文件"]
    body = session.exec(f"for name in {names!r}: open('outputs/' + name, 'w').write(name)")
    assert sorted(f["name"] for f in body["files"]) == sorted(names)
    assert session.get("outputs/line\nbreak") == b"line\nbreak"
    rewrite = "import os\ns = os.stat('outputs/tab\\there')\nopen('outputs/tab\\there', 'w').write('another!')\n"
    changed = session.exec(rewrite + "os.utime('outputs/tab\\there', ns=(s.st_atime_ns, s.st_mtime_ns))")
    assert [f["data_base64"] for f in changed["files"]] == [b64(b"another!")]


def test_types_do_not_depend_on_the_host(session: Session) -> None:
    """Weakness 30."""
    office = "application/vnd.openxmlformats-officedocument."
    expected = {
        "a.docx": office + "wordprocessingml.document", "a.pptx": office + "presentationml.presentation",
        "a.xlsx": office + "spreadsheetml.sheet", "a.webp": "image/webp", "a.md": "text/markdown",
        "a.csv": "text/csv", "a.pdf": "application/pdf", "a.svg": "image/svg+xml",
        "a.unknown": "application/octet-stream",
    }  # fmt: skip
    body = session.exec(f"for name in {list(expected)}: open('outputs/' + name, 'w').write('x')")
    assert {f["name"]: f["mime_type"] for f in body["files"]} == expected


def test_every_file_can_be_listed_and_fetched_in_part(session: Session) -> None:
    """Weakness 31: pages without an end, raw bytes and ranges, many files at once."""
    session.exec(
        "import os\nos.makedirs('a/b/c/d/e/f/g')\nfor n in range(1200): open(f'a/b/c/d/e/f/g/{n:04}', 'w').write('x')"
    )
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = session.post("/files/list", after=after, limit=500).json()
        found += [item["path"] for item in page["files"]]
        after = page["next"]
    assert found == [f"a/b/c/d/e/f/g/{n:04}" for n in range(1200)]
    assert session.put("uploads/t", b"0123456789").status_code == 200
    part = session.http.get(f"{session.conversation}/files/uploads/t", headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.content) == (206, b"234")
    sent = session.http.post(
        f"{session.conversation}/files", files=[("file", ("uploads/m1", b"1")), ("file", ("uploads/m2", b"2"))]
    )
    assert sent.status_code in (200, 201), sent.text
    assert session.get("uploads/m2") == b"2"


def test_get_or_create_and_runs_that_are_not_repeated(session: Session, http: httpx.Client) -> None:
    """Weakness 32."""
    name = f"c{os.urandom(6).hex()}"
    first = Session.new(http, archive_key=name)
    second = Session.new(http, archive_key=name)
    assert (first.created["resumed"], second.created["resumed"]) == (False, True)
    first.exec("x = 'shared'")
    assert second.out("print(x)") == "shared\n"
    call = {"session_id": session.id, "code": "n = globals().get('n', 0) + 1\nprint(n)"}
    twice = [http.post("/exec", json=call, headers={"Idempotency-Key": "turn-1"}).json()["stdout"] for _ in range(2)]
    assert twice == ["1\n", "1\n"]
    second.delete(discard=True)


def test_a_content_that_is_there_is_not_sent_again(session: Session) -> None:
    """Weakness 35: a reset and the same uploads leave the file in the sandbox as it is."""
    content = os.urandom(3 << 20)
    look = "import os; s = os.stat('uploads/data.bin'); print(s.st_ino, s.st_ctime_ns)"
    seen = set()
    for _ in range(3):
        session.post("/files/reset-inputs")
        assert session.put("uploads/data.bin", content).status_code == 200
        seen.add(session.out(look))
    assert len(seen) == 1
    session.post("/files/reset-inputs")
    assert session.put("uploads/data.bin", content[::-1]).status_code == 200
    assert session.out(look) not in seen  # the control: another content is another file


def peak(runner: Runner) -> int:
    """The most memory that the service has had since it was last asked, in bytes."""
    status = Path(f"/proc/{runner.pid}/status").read_text(encoding="ascii")
    Path(f"/proc/{runner.pid}/clear_refs").write_text("5", encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def test_large_files_pass_through_little_memory(tmp_path: Path) -> None:
    """Weaknesses 36 and 48: a file is read, encoded and sent in pieces, however large."""
    with running(tmp_path) as service, service.client() as http:
        session = Session.new(http)
        session.exec("import os\nwith open('big', 'wb') as f:\n    for _ in range(160): f.write(os.urandom(1 << 20))")
        peak(service)
        before, got = peak(service), 0
        with http.stream("POST", "/files/get", json={"session_id": session.id, "path": "big"}) as answer:
            assert int(answer.headers["content-length"]) == -(-(160 << 20) // 3) * 4 + 18
            for piece in answer.iter_bytes():
                got += len(piece)
        assert got == int(answer.headers["content-length"])
        assert peak(service) - before < 48 << 20
        body = session.exec("for n in (1, 2): open(f'outputs/{n}', 'wb').write(os.urandom(18 << 20))")
        assert [f["size"] for f in body["files"]] == [18 << 20] * 2
        assert [hashlib.sha256(session.get(f["path"])).hexdigest() for f in body["files"]] == [
            f["sha256"] for f in body["files"]
        ]


def test_a_place_is_free_when_the_run_has_ended(tmp_path: Path) -> None:
    """Weakness 40: who takes an answer slowly keeps no other session from running."""
    with running(tmp_path, SANDBOX_MAX_CONCURRENT_EXECS="1") as service, service.client() as http:
        one, two = Session.new(http), Session.new(http)
        code = "import os\nfor n in (1, 2): open(f'outputs/{n}', 'wb').write(os.urandom(18 << 20))"
        with http.stream("POST", "/exec", json={"session_id": one.id, "code": code}) as slow:
            assert slow.status_code == 200
            assert two.out("print('meanwhile')") == "meanwhile\n"
            assert len(slow.read()) == int(slow.headers["content-length"]) > 48 << 20


def test_create_starts_nothing(session: Session) -> None:
    """Weakness 37: a session costs no sandbox before it runs something, and then takes a warm one."""
    assert session.http.get(session.conversation).json()["live"] is False
    session.exec("pass")
    assert session.http.get(session.conversation).json()["live"] is True


def test_health_answers_while_many_wait(runner: Runner, http: httpx.Client) -> None:
    """Weakness 39: waiting calls take no threads from anything."""
    busy = Session.new(http)
    with ThreadPoolExecutor(60) as threads:
        going_on = threads.submit(busy.exec, "import time; time.sleep(8)")
        calls = [threads.submit(busy.put, f"uploads/{n}", b"x") for n in range(20)]
        waiting = [threads.submit(busy.post, "/exec", code="1") for _ in range(30)]
        for _ in range(5):
            assert httpx.get(f"{runner.url}/healthz", timeout=20).status_code == 200
        assert all(call.result().status_code == 200 for call in calls)  # files wait for no run
        assert going_on.result()["exit_code"] == 0
        assert {call.result().status_code for call in waiting} == {200}
    busy.delete(discard=True)


def test_inputs_and_run_are_one_step(http: httpx.Client) -> None:
    """Weakness 56: parallel calls of one turn each see their own inputs and nobody else's."""
    name = f"c{os.urandom(6).hex()}"
    sessions = [Session.new(http, archive_key=name) for _ in range(3)]
    code = "import os, json; print(json.dumps({f: open('uploads/' + f).read() for f in os.listdir('uploads')}))"

    def call(number: int) -> bool:
        mine = {"shared.txt": f"content {number}", f"only-{number}.txt": "x"}
        inputs = [{"path": f"uploads/{f}", "data_base64": b64(text.encode())} for f, text in mine.items()]
        seen: dict[str, str] = json.loads(sessions[number % 3].out(code, inputs=inputs))
        return seen == mine

    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(call, range(18)))
    outside = [{"path": "outputs/x", "data_base64": ""}]
    assert sessions[0].post("/exec", code="1", inputs=outside).status_code == 400
    sessions[0].delete(discard=True)
