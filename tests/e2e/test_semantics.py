"""The same semantics over HTTP: what a caller sees of outcomes, results, interpreters and files."""

from __future__ import annotations

from tests.support.runner import Chat


def test_interpreter_states_and_reasons(chat: Chat) -> None:
    assert chat.ok("x = 1")["interpreter"] == "new"
    assert chat.run("raise ValueError('v')")["interpreter"] == "kept"
    lost = chat.run("import os; os.closerange(3, 65536)")
    assert (lost["outcome"], lost["interpreter"]) == ("crashed", "lost")
    after = chat.ok("1")
    assert (after["interpreter"], after["interpreter_reason"]) == ("new", "lost_in_previous_run")


def test_a_killed_run_is_a_timeout_and_the_next_one_works(chat: Chat) -> None:
    code = "while True:\n    try:\n        while True: pass\n    except BaseException: pass"
    result = chat.run(code, timeout_ms=500)
    assert (result["outcome"], result["interpreter"]) == ("timeout", "lost")
    assert chat.ok("print(1)")["stdout"] == "1\n"


def test_writes_through_mappings_make_a_version(chat: Chat) -> None:
    chat.put("m.bin", b"0" * 4096)
    code = "import mmap\nwith open('m.bin', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m: m[0:2] = b'12'"
    assert [file["path"] for file in chat.ok(code)["files"]] == ["m.bin"]
    assert chat.get("m.bin").content[:3] == b"120"


def test_many_files_at_once(chat: Chat) -> None:
    result = chat.ok("for i in range(1500): open(f'outputs/{i}', 'w').write(str(i))")
    assert len(result["files"]) == 1500
    assert chat.get("outputs/1499").text == "1499"


def test_text_comes_out_as_it_went_in(chat: Chat) -> None:
    for text in ("\x00", "é中🎉", "a\r\nb", "\x1b[31m"):
        assert chat.ok(f"print({text!r}, end='')")["stdout"] == text
    # Surrogates and bytes that are no text are valid JSON all the same.
    result = chat.ok("import os\nprint('\\ud800')\nos.write(1, b'\\xff');")
    assert result["stdout"] == "\\ud800\n\ufffd"


def test_a_forked_child_does_not_answer_for_the_cell(chat: Chat) -> None:
    code = "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('once' if pid else 'child')\npid > 0"
    result = chat.ok(code)
    assert result["stdout"] == "child\nonce\n"
    assert [entry["data"]["text/plain"] for entry in result["results"]] == ["True"]
