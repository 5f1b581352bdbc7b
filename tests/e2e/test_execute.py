"""Running cells over HTTP: IPython semantics, results, outcomes, state between calls."""

from __future__ import annotations

from tests.support.runner import Chat


def test_variables_live_across_calls(chat: Chat) -> None:
    first = chat.ok("x = 41")
    second = chat.ok("print(x + 1)")
    assert (first["interpreter"], second["interpreter"]) == ("new", "kept")
    assert second["stdout"] == "42\n"


def test_last_expression_is_a_result(chat: Chat) -> None:
    result = chat.ok("1 + 1")
    assert result["results"] == [{"type": "result", "data": {"text/plain": "2"}}]


def test_error_is_a_result_with_the_line_in_the_cell(chat: Chat) -> None:
    result = chat.run("a = 1\nb = 0\na / b")
    assert result["outcome"] == "error"
    assert result["error"]["name"] == "ZeroDivisionError"
    assert result["error"]["line"] == 3
    assert "foliobox" not in result["error"]["traceback"]
    assert "IPython" not in result["error"]["traceback"]


def test_open_figure_becomes_a_picture(chat: Chat) -> None:
    result = chat.ok("import matplotlib.pyplot as plt\nplt.plot([1, -2])\nNone")
    picture = chat.http.get(result["results"][0]["data"]["image/png"])
    assert picture.headers["content-type"] == "image/png"
    assert picture.content.startswith(b"\x89PNG")
    assert chat.ok("plt.get_fignums()")["results"][0]["data"]["text/plain"] == "[]"


def test_exit_keeps_the_interpreter_and_os_exit_loses_it(chat: Chat) -> None:
    chat.ok("x = 1")
    left = chat.run("raise SystemExit(3)")
    assert (left["outcome"], left["exit_code"], left["interpreter"]) == ("error", 3, "kept")
    assert left["stderr"] == ""
    lost = chat.run("import os; os._exit(4)")
    assert (lost["outcome"], lost["exit_code"], lost["interpreter"]) == ("crashed", 4, "lost")
    after = chat.run("x")
    assert (after["error"]["name"], after["interpreter"]) == ("NameError", "new")
    assert after["interpreter_reason"] == "lost_in_previous_run"
