"""Whole conversations of both generations of the gateway: inputs on every call, artifacts, parallel calls."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.conformance.sessions.client import SessionsClient
from tests.conformance.sessions.gateway import Conversation

Talk = Callable[..., Conversation]
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAAMBAQDJ/pLvAAAAAElFTkSuQmCC")
TREE = """
import os
for folder in ('uploads', 'skills', 'downloads'):
    for at, _, names in sorted(os.walk('/workspace/' + folder)):
        for name in sorted(names):
            path = os.path.join(at, name)
            print(os.path.relpath(path, '/workspace'), os.path.getsize(path))
"""


def test_inputs_are_there_on_every_call_as_they_were_sent(talk: Talk) -> None:
    chat = talk(
        uploads=[("a.csv", b"x,y\n1,2\n"), ("dir/a.csv", b"other"), ("empty.txt", b""), ("名.txt", b"4")],
        generated=[("cat.png", PNG)],
        skills=[("charts", "style.mplstyle", b"font.size: 9\n")],
    )
    tree = (
        f"uploads/a-2.csv 5\nuploads/a.csv 8\nuploads/empty.txt 0\nuploads/generated-cat.png {len(PNG)}\n"
        "uploads/名.txt 1\nskills/charts/style.mplstyle 13\n"
    )
    for _ in range(3):
        assert chat.python(TREE).ran.stdout == tree
    changed = chat.python("open('/workspace/uploads/a.csv', 'w').write('spoilt'); print('done')")
    assert changed.ran.stdout == "done\n"
    assert chat.python("print(open('/workspace/uploads/a.csv').read())").ran.stdout == "x,y\n1,2\n\n"
    chat.uploads[:] = [("b.txt", b"later")]
    chat.generated.clear()
    chat.skills.clear()
    assert chat.python(TREE).ran.stdout == "uploads/b.txt 5\n"
    assert len(chat.created) == 1


def test_what_a_call_leaves_is_there_for_the_next(talk: Talk) -> None:
    chat = talk(uploads=[("a.txt", b"1")])
    chat.python("open('/workspace/notes.txt', 'w').write('kept')")
    chat.python("import os; os.makedirs('/workspace/deep/er'); open('/workspace/deep/er/x', 'w').write('too')")
    seen = chat.python("print(open('/workspace/notes.txt').read(), open('/workspace/deep/er/x').read())")
    assert seen.text == "stdout:\nkept too\n\n"


def test_artifacts_are_the_new_and_changed_files_of_outputs(talk: Talk) -> None:
    chat = talk()
    first = chat.python("open('/workspace/outputs/r.txt', 'w').write('one'); open('/workspace/no.txt', 'w').write('-')")
    assert first.artifacts == {"r.txt": b"one"}
    assert "Produced files:\n- r.txt (text/plain)\n" in first.text
    assert chat.python("print('nothing new')").artifacts == {}
    assert chat.python("open('/workspace/outputs/r.txt', 'w').write('second')").artifacts == {"r.txt": b"second"}
    assert chat.python("import os; os.remove('/workspace/outputs/r.txt')").artifacts == {}


def test_a_rewrite_of_the_same_size_and_time_is_a_change(talk: Talk) -> None:
    chat = talk()
    chat.python("open('/workspace/outputs/r', 'w').write('one')")
    rewrite = "import os; s = os.stat('/workspace/outputs/r'); open('/workspace/outputs/r', 'w').write('two')\n"
    again = chat.python(rewrite + "os.utime('/workspace/outputs/r', ns=(s.st_atime_ns, s.st_mtime_ns))")
    assert again.artifacts == {"r": b"two"}


def test_two_artifacts_of_one_name_both_come(talk: Talk) -> None:
    chat = talk()
    turn = chat.python(
        "import os\nfor d in ('d1', 'd2'):\n    os.makedirs(f'/workspace/outputs/{d}')\n"
        "    open(f'/workspace/outputs/{d}/r.csv', 'w').write(d)"
    )
    assert sorted(data for _, _, data in turn.ran.files) == [b"d1", b"d2"]
    assert all("/" not in name for name, _, _ in turn.ran.files)


def test_odd_names_of_artifacts_come_whole(talk: Talk) -> None:
    names = ["tab\tname.txt", "line\nname.txt", "名前.txt", "q'\".txt", "-n", " lead"]
    chat = talk()
    turn = chat.python(f"for n in {names!r}: open('/workspace/outputs/' + n, 'w').write('x')")
    assert sorted(name for name, _, _ in turn.ran.files) == sorted(names)


def test_types_do_not_depend_on_the_host(client: SessionsClient, session: str) -> None:
    office = "application/vnd.openxmlformats-officedocument."
    types = {
        "docx": f"{office}wordprocessingml.document",
        "pptx": f"{office}presentationml.presentation",
        "xlsx": f"{office}spreadsheetml.sheet",
        "webp": "image/webp",
        "md": "text/markdown",
        "pdf": "application/pdf",
        "png": "image/png",
        "svg": "image/svg+xml",
        "csv": "text/csv",
        "json": "application/json",
        "unknown-kind": "application/octet-stream",
    }
    made = f"for s in {list(types)}: open(f'/workspace/outputs/a.{{s}}', 'wb').write(bytes([0, 1]))"
    found = {name.partition(".")[2]: mime for name, mime, _ in client.exec(session, made).files}
    assert found == types


def test_an_outputs_folder_that_went_away_or_became_a_link(client: SessionsClient, session: str) -> None:
    client.exec(session, "import shutil; shutil.rmtree('/workspace/outputs')")
    after = client.exec(session, "open('/workspace/outputs/a', 'w').write('1')")
    assert [(name, data) for name, _, data in after.files] == [("a", b"1")], after.stderr
    client.exec(session, "import os, shutil\nshutil.rmtree('outputs')\nos.mkdir('el')\nos.symlink('el', 'outputs')")
    linked = client.exec(session, "open('/workspace/outputs/b', 'w').write('2')")
    assert [(name, data) for name, _, data in linked.files] == [("b", b"2")], linked.stderr


def test_exit_codes_and_streams_of_a_failing_run(client: SessionsClient, session: str) -> None:
    failed = client.exec(session, "print('out'); 1 / 0")
    assert (failed.stdout, failed.exit_code) == ("out\n", 1)
    assert "ZeroDivisionError" in failed.stderr
    assert client.exec(session, "raise SystemExit(7)").exit_code == 7
    assert client.exec(session, "import sys; sys.exit('said')").exit_code == 1
    assert client.exec(session, "def").exit_code == 1
    silent = client.exec(session, "pass")
    assert (silent.stdout, silent.stderr, silent.exit_code, silent.files) == ("", "", 0, [])
    assert client.exec(session, "").exit_code == 0


def test_bytes_that_are_no_text_do_not_spoil_the_answer(client: SessionsClient, session: str) -> None:
    ran = client.exec(session, "import os; os.write(1, b'\\xff\\xfe ok\\n')")
    assert "\N{REPLACEMENT CHARACTER}" in ran.stdout
    assert "ok" in ran.stdout


def test_variables_imports_and_modules_of_the_workspace_stay(client: SessionsClient, session: str) -> None:
    client.exec(session, "import math\nx = 41")
    assert client.exec(session, "print(x + 1, math.floor(2.5))").stdout == "42 2\n"
    client.put(session, "helper.py", b"value = 7\n")
    assert client.exec(session, "import helper; print(helper.value)").stdout == "7\n"


def test_an_image_is_put_beside_the_files(talk: Talk) -> None:
    chat = talk(uploads=[("a.txt", b"1")])
    path = chat.fetch_image("https://example.org/photo", PNG)
    read = f"print(open({path!r}, 'rb').read(4))"
    assert chat.python(read).ran.stdout == "b'\\x89PNG'\n"
    assert chat.python(read).ran.stdout == "b'\\x89PNG'\n"
    assert len(chat.created) == 1


def test_parallel_calls_of_one_turn_each_get_their_own_answer(talk: Talk) -> None:
    chat = talk(uploads=[("a.txt", b"input")])
    with ThreadPoolExecutor(4) as pool:
        turns = list(pool.map(lambda n: chat.python(f"print('call', {n})"), range(4)))
    assert [turn.ran.stdout for turn in turns] == [f"call {n}\n" for n in range(4)]
    assert len(chat.created) == 1, "each call had a session of its own"
    assert chat.python("print(open('/workspace/uploads/a.txt').read())").ran.stdout == "input\n"


def test_parallel_conversations_do_not_see_each_other(talk: Talk) -> None:
    chats = [talk(uploads=[("who.txt", f"{n}".encode())]) for n in range(4)]
    barrier = threading.Barrier(4)

    def go(number: int) -> str:
        barrier.wait(30)
        return chats[number].python("print(open('/workspace/uploads/who.txt').read())").ran.stdout

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(go, range(4))) == [f"{n}\n" for n in range(4)]
