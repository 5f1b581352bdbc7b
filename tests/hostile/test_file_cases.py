"""Cases 31 to 40 and 46: files of a hostile workspace on their way in and out.

Elsewhere: names of every kind in ``tests/e2e/test_names.py`` (31), tar and zip in ``tests/e2e/test_bulk.py`` and
``test_archive.py`` (41, 42). Controls weaken the agent: it follows links, reports whatever it meets, writes
through what is in the way, or lets the interpreter run on while files are collected.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.conftest import Weaken
from tests.hostile.support import outside
from tests.hostile.support.place import Place
from tests.support.differences import differs

SECRET = "what no workspace holds"
PLANT = f"""
import os
os.makedirs('/tmp/target', exist_ok=True)
open('/tmp/target/file', 'w').write({SECRET!r})
os.symlink('/tmp/target/file', 'outputs/absolute')
os.symlink('../../../tmp/target/file', 'outputs/relative')
os.symlink('/tmp/target', 'outputs/folder')
os.symlink('/proc/self/root/tmp/target/file', 'outputs/magic')
os.symlink('/proc/1/environ', 'outputs/environ')
os.symlink('absolute', 'outputs/chain')
os.symlink('loop', 'outputs/loop')
"""
TARGET = "print(open('/tmp/target/file').read(), sorted(os.listdir('/tmp/target')))"
UNCHANGED = f"{SECRET} ['file']\n"


def paths(result: dict[str, Any]) -> set[str]:
    """Files that a run stored."""
    return {file["path"] for file in result["files"]}


def stored(place: Place) -> dict[str, bytes]:
    """Content of every stored file, as the service gives it out."""
    found = {}
    for path in place.chat.files():
        answer = place.chat.get(path)
        if answer.status_code == 200:
            found[path] = answer.content
    return found


def peak(pid: int) -> int:
    """Most resident memory of a process since ``forget_peak``, in bytes."""
    return int(outside.status(pid)["VmHWM"].split()[0]) << 10


def forget_peak(pid: int) -> int:
    """Start the peak anew (proc(5), clear_refs); gives resident bytes now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


# -- 34: links as artifacts ------------------------------------------------------------------------------------


def test_links_are_never_followed_on_the_way_out(strong: Place) -> None:
    result = strong.run(PLANT)
    assert result["outcome"] == "ok"
    assert paths(result) == set()
    assert SECRET.encode() not in b"".join(stored(strong).values())
    for name in ("absolute", "relative", "magic", "environ", "chain", "loop", "folder/file"):
        assert strong.chat.get(f"outputs/{name}").status_code == 404


def test_control_an_agent_that_follows_links_gives_away_what_they_lead_to(weaken: Weaken) -> None:
    weak = weaken("follows_links", "opens_links")
    weak.run("\n".join(PLANT.splitlines()[:5]))
    assert stored(weak) == {"outputs/absolute": SECRET.encode()}


# -- 32, 33: uploads and removals onto what was planted --------------------------------------------------------

PLANTED = {
    "link": "os.symlink('/tmp/target/file', 'outputs/x')",
    "dangling link": "os.symlink('/tmp/target/new', 'outputs/x')",
    "linked folder": "os.symlink('/tmp/target', 'outputs/d')",
    "socket": "import socket; socket.socket(socket.AF_UNIX).bind('outputs/x')",
    "folder": "os.makedirs('outputs/x/y/z'); open('outputs/x/y/z/f', 'w').close(); os.chmod('outputs/x/y', 0)",
}


@pytest.mark.parametrize("kind", PLANTED)
def test_an_upload_replaces_what_was_planted(strong: Place, kind: str) -> None:
    path = "outputs/d/file" if kind == "linked folder" else "outputs/x"
    strong.say(f"{PLANT}\n{PLANTED[kind]}")
    if kind == "linked folder":
        assert strong.chat.put(path, b"new").status_code == 409
        assert strong.http_delete("outputs/d") == 204
    if kind == "folder":
        assert strong.chat.put(path, b"new").status_code == 409
        assert strong.http_delete("outputs/x/y/z/f") == 204
    assert strong.chat.put(path, b"new").status_code in (200, 201)
    assert strong.say(f"import os, stat\nprint(open({path!r}).read(), stat.S_ISREG(os.lstat({path!r}).st_mode))") == (
        "new True\n"
    )
    assert strong.say(f"import os\n{TARGET}") == UNCHANGED


def test_control_an_agent_that_writes_through_links_changes_their_target(weaken: Weaken) -> None:
    weak = weaken("writes_through_links")
    weak.say(f"{PLANT}\n{PLANTED['link']}")
    assert weak.chat.put("outputs/x", b"new").status_code in (200, 201)
    assert weak.say(f"import os\n{TARGET}") == "new ['file']\n"


def test_removal_takes_the_link_and_not_its_target(strong: Place) -> None:
    strong.say(f"{PLANT}\nopen('outputs/f', 'w').close()")
    assert strong.http_delete("outputs/f") == 204
    strong.say("import os; os.symlink('/tmp/target/file', 'outputs/f')")
    assert strong.http_delete("outputs/f") == 204
    assert strong.say("import os; print(os.path.lexists('outputs/f'))") == "False\n"
    assert strong.say(f"import os\n{TARGET}") == UNCHANGED


# -- 35, 38: what changes while it is collected ----------------------------------------------------------------

SWAP = f"""
import os, threading, time
os.makedirs('/tmp/target', exist_ok=True)
for n in range(20):
    if not os.path.exists(f'/tmp/target/{{n}}'):
        open(f'/tmp/target/{{n}}', 'w').write({SECRET!r})
        os.chmod(f'/tmp/target/{{n}}', 0o444)
def swap():
    while True:
        time.sleep(0.002)
        os.rename('outputs/d', 'outputs/.aside')
        os.symlink('/tmp/target', 'outputs/d')
        time.sleep(0.002)
        os.unlink('outputs/d')
        os.rename('outputs/.aside', 'outputs/d')
if not any(t.name == 'swap' for t in threading.enumerate()):
    if os.path.islink('outputs/d'):
        os.unlink('outputs/d')
    if os.path.isdir('outputs/.aside'):
        os.rename('outputs/.aside', 'outputs/d')
    os.makedirs('outputs/d', exist_ok=True)
    threading.Thread(target=swap, name='swap', daemon=True).start()
for n in range(20):
    try:
        open(f'outputs/d/{{n}}', 'w').write(f'ours {{time.time()}}' * 5000)  # large ones are fetched one by one
    except OSError:
        pass
"""


def foreign(place: Place, seconds: float) -> int:
    """Rounds in which bytes from outside the workspace were stored, while a thread of the interpreter swaps."""
    deadline = time.monotonic() + seconds
    found = rounds = 0
    while time.monotonic() < deadline and not found:
        rounds += 1
        place.run(SWAP)
        found += any(SECRET.encode() in content for content in stored(place).values())
    assert found or rounds >= 10
    return found


def test_a_folder_swapped_for_a_link_gives_no_foreign_bytes(strong: Place) -> None:
    assert foreign(strong, 6.0) == 0


def test_control_with_an_interpreter_that_runs_on_the_swap_succeeds(weaken: Weaken) -> None:
    assert foreign(weaken("interpreter_runs_on"), 80.0) > 0


GROW = """
import os, threading
def grow():
    n = 0
    while True:
        n += 1
        with open('outputs/log', 'ab', buffering=0) as f:
            f.write(b'%d\\n' % n)
        if n % 1000 == 0:
            os.truncate('outputs/log', 0)
        os.replace(os.path.realpath('outputs/log'), 'outputs/log2'); open('outputs/log', 'wb').write(b'new')
threading.Thread(target=grow, daemon=True).start()
open('outputs/log', 'ab').close()
"""


@pytest.mark.parametrize("weakness", [None, "interpreter_runs_on"])
def test_size_and_hash_are_those_of_the_bytes_given_out(strong: Place, weaken: Weaken, weakness: str | None) -> None:
    """Also where the wall is missing that keeps files from changing meanwhile."""
    place = weaken(weakness) if weakness else strong
    place.run(GROW)
    for _ in range(5):
        result = place.run("open('outputs/other', 'a').write('x')")
        for file in result["files"]:
            if file["change"] != "deleted":
                content = place.chat.get(file["path"]).content
                listed = {f["path"]: f for f in place.listing()}
                if listed[file["path"]]["sha256"] == file["sha256"]:
                    assert len(content) == file["size"]
                    assert hashlib.sha256(content).hexdigest() == file["sha256"]


# -- 36, 37: hard links and special files ----------------------------------------------------------------------


def test_hard_links_hold_content_of_the_workspace_only(strong: Place) -> None:
    result = strong.run(
        "import os\nopen('outputs/a', 'w').write('own')\nos.link('outputs/a', 'outputs/b')\n"
        "refused = 0\n"
        "for source in ('/usr/bin/python3', '/etc/passwd', '/tmp/t', '/proc/self/environ', '/home/sandbox/h'):\n"
        "    if source.startswith(('/tmp', '/home')): open(source, 'w').write('outside')\n"
        "    try: os.link(source, 'outputs/c')\n"
        "    except OSError: refused += 1\n"
        "print(refused)"
    )
    assert result["stdout"] == "5\n"
    assert stored(strong) == {"outputs/a": b"own", "outputs/b": b"own"}


SPECIAL = """
import os, socket, stat
socket.socket(socket.AF_UNIX).bind('outputs/socket')
wanted = {'disk': (stat.S_IFBLK, 8, 0), 'memory': (stat.S_IFCHR, 1, 1), 'pipe': (stat.S_IFIFO, 0, 0)}
for name, (kind, *device) in wanted.items():
    try:
        os.mknod(f'outputs/{name}', kind | 0o666, os.makedev(*device))
        print('pipe' if name == 'pipe' else os.open(f'outputs/{name}', os.O_RDONLY))
    except OSError:
        print('refused')
open('outputs/file', 'w').write('ours')
"""


def test_special_files_are_told_of_and_hold_nothing_up(strong: Place) -> None:
    strong.say("print()")  # the sandbox is there; its start is not what is measured
    began = time.monotonic()
    result = strong.run(SPECIAL)
    assert time.monotonic() - began < 5
    made = {"outputs/disk", "outputs/memory", "outputs/pipe"} if differs("device-nodes") else set()
    assert (result["outcome"], result["stdout"]) == ("ok", "refused\n" * 2 + ("pipe\n" if made else "refused\n"))
    assert paths(result) == {"outputs/file"}
    assert {entry["path"] for entry in result["skipped"]} == {"outputs/socket", *made}


def test_control_an_agent_that_reports_special_files_spoils_the_run(weaken: Weaken) -> None:
    result = weaken("reports_everything").run(SPECIAL)
    assert result["outcome"] != "ok" or result["files_error"]


# -- 39, 25: too many, too large, too deep ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param(
            "import os\nfor n in range(100_000):\n    os.close(os.open(f'outputs/{n}', os.O_CREAT))", "files", id="many"
        ),
        pytest.param("import os; os.close(os.open('outputs/x', os.O_CREAT)); os.truncate('outputs/x', 10 << 30)",
                     "bytes", id="large"),
        pytest.param("import os; os.close(os.open('outputs/x', os.O_CREAT)); os.truncate('outputs/x', 1 << 40)",
                     "bytes", id="sparse"),
    ],
)  # fmt: skip
def test_what_is_too_much_is_told_and_costs_the_runner_nothing(strong: Place, code: str, told: str) -> None:
    strong.chat.put("uploads/kept", b"kept")
    before = forget_peak(strong.runner.pid)
    result = strong.run(code)
    assert result["outcome"] in ("ok", "error")
    if result["outcome"] == "ok":
        assert result["files_error"]["code"] in ("quota_exceeded", "too_large")
        assert told in result["files_error"]["detail"]
    assert peak(strong.runner.pid) - before < 64 << 20
    shown = strong.chat.http.get(f"/v1/conversations/{strong.chat.id}").json()
    assert shown["files"] <= 20_000
    assert shown["size_bytes"] < 1000
    assert strong.chat.get("uploads/kept").content == b"kept"
    assert strong.say("print(open('uploads/kept').read())") == "kept\n"


DEEP = """
import os
os.chdir('outputs')
for _ in range(LEVELS):
    os.mkdir('d')
    os.chdir('d')
open('bottom', 'w').close()
os.chdir('/workspace')
"""


def test_deep_trees_are_told_of(strong: Place) -> None:
    result = strong.run(DEEP.replace("LEVELS", "200") + "open('outputs/ours', 'w').close()")
    assert result["outcome"] == "ok"
    assert "outputs/ours" in paths(result)
    assert any("levels" in entry["reason"] for entry in result["skipped"])


# -- 40: paths of clients --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "//etc/passwd",
     "/proc/self/environ", "outputs/../../../etc/passwd", "....//etc/passwd", "..\\..\\etc\\passwd", "etc/passwd%00",
     "/workspace/../etc/passwd", "file:///etc/passwd"],
)  # fmt: skip
def test_no_path_of_a_client_leads_out(strong: Place, path: str) -> None:
    for method in ("GET", "HEAD", "DELETE", "PUT"):
        answer = strong.raw(method, path)
        assert answer.status_code in (400, 404, 405, 409, 422) or (method == "PUT" and answer.status_code == 201)
        assert b"root:" not in answer.content
    assert Path("/etc/passwd").read_bytes().startswith(b"root:")


# -- 46: removing a hostile tree -------------------------------------------------------------------------------

HOSTILE_TREE = (
    DEEP.replace("LEVELS", "10_000")
    + """
os.makedirs('outputs/locked/inner')
open('outputs/locked/inner/file', 'w').close()
os.chmod('outputs/locked/inner', 0)
os.chmod('outputs/locked', 0)
for n in range(5000):
    os.mkdir(f'/tmp/{n}')
keep = open('outputs/open', 'w')
"""
)


def test_a_hostile_tree_is_gone_with_its_conversation(strong: Place) -> None:
    strong.run(HOSTILE_TREE)
    left = strong.processes()
    began = time.monotonic()
    strong.chat.purge()
    assert time.monotonic() - began < 5
    outside.wait_for(lambda: not any(outside.alive(pid) for pid in left), "its processes are gone", 5)
    assert strong.chat.http.get(f"/v1/conversations/{strong.chat.id}").status_code == 404


def test_a_hostile_tree_gives_way_to_an_upload(strong: Place) -> None:
    result = strong.run(HOSTILE_TREE.replace("chdir('outputs')", "mkdir('outputs/t'); os.chdir('outputs/t')"))
    assert result["outcome"] == "ok"
    for path in strong.chat.files():
        assert strong.http_delete(path) == 204
    began = time.monotonic()
    assert strong.chat.put("outputs/locked", b"file").status_code in (201, 409)
    answer = strong.chat.put("outputs/t", b"file")
    assert answer.status_code in (201, 409)
    assert strong.say("print(1)") == "1\n"
    assert time.monotonic() - began < 10
    if answer.status_code == 201:
        assert strong.say("print(open('outputs/t').read())") == "file\n"
