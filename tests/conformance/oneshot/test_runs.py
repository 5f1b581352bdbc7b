"""Sections 4 to 6: how a script runs, how it ends, what is kept of its output, and how time limits it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.kit import Place
from tests.conformance.oneshot.client import OneshotClient
from tests.conformance.oneshot.gateway import Turn


def test_both_languages_run_with_their_inputs(client: OneshotClient) -> None:
    python = client.run("python", "print(open('in.txt').read())", {"in.txt": b"data"})
    bash = client.run("bash", "cat in.txt; echo err >&2", {"in.txt": b"data"})
    assert (python.raw["stdout"], python.raw["exit_code"]) == ("data\n", 0)
    assert (bash.raw["stdout"], bash.raw["stderr"], bash.raw["exit_code"]) == ("data", "err\n", 0)


def test_code_runs_as_a_script(client: OneshotClient) -> None:
    ran = client.run("python", "import sys, os\nprint(__name__, len(sys.argv))\n6 * 7\nx = input if 0 else None\n")
    assert ran.raw["stdout"] == "__main__ 1\n"
    assert client.run("python", "import sys; print(repr(sys.stdin.read()))").raw["stdout"] == "''\n"
    assert client.run("bash", "cat; echo done").raw["stdout"] == "done\n"


def test_the_folder_has_both_names_and_is_home(client: OneshotClient) -> None:
    code = "import os\nprint(os.getcwd() in ('/work', '/workspace'), os.path.samefile(os.environ['HOME'], '.'))\n"
    code += "for f in ('/work', '/workspace'): print(open(f + '/in.txt').read())\nopen('/work/out.txt', 'w').write('1')"
    ran = client.run("python", code, {"in.txt": b"data"})
    assert ran.raw["stdout"] == "True True\ndata\ndata\n", ran.raw
    assert list(ran.artifacts) == ["out.txt"]


@pytest.fixture(scope="module")
def shared(place: Place) -> Iterator[Turn]:
    """One turn for all scripts of which only the end matters."""
    turn = Turn(OneshotClient(place.url))
    yield turn
    turn.end()
    turn.client.close()


@pytest.mark.parametrize(
    ("language", "code", "status"),
    [
        ("bash", "exit 3", 3),
        ("bash", "false", 1),
        ("bash", "kill -9 $$", -9),
        ("bash", "kill -TERM $$", -15),
        ("bash", "no-such-command", 127),
        ("python", "import sys; sys.exit(5)", 5),
        ("python", "import os; os._exit(6)", 6),
        ("python", "1 / 0", 1),
        ("python", "def", 1),
        ("python", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("python", "", 0),
        ("bash", "", 0),
    ],
)
def test_exit_codes(shared: Turn, language: str, code: str, status: int) -> None:
    ran = shared.run(language, code)
    assert (ran["exit_code"], ran["timed_out"]) == (status, False), ran
    assert "workdir_reset" not in ran


def test_nothing_is_kept_between_single_runs(client: OneshotClient) -> None:
    client.run("bash", "echo 1 > left; echo 1 > /tmp/left")
    assert client.run("bash", "find . -type f; ls /tmp/left").raw["stdout"] == ""


def test_a_late_run_is_minus_one_and_keeps_its_part(client: OneshotClient) -> None:
    code = "import time\nopen('part.txt', 'w').write('half')\nprint('begun', flush=True)\ntime.sleep(60)"
    ran = client.run("python", code, timeout_secs=2, keep_alive=True)
    assert (ran.raw["exit_code"], ran.raw["timed_out"], ran.container) == (-1, True, None)
    assert "2" in ran.raw["stderr"]
    assert 2000 <= ran.raw["duration_ms"] < 12000
    assert ran.raw["stdout"] == "begun\n"
    assert {name: each.data for name, each in ran.artifacts.items()} == {"part.txt": b"half"}


def test_limits_are_clamped(small: OneshotClient) -> None:
    for asked, effective in ((0, 1), (600, 4), (None, 3)):
        ran = small.run("bash", "sleep 60", timeout_secs=asked)
        assert ran.raw["timed_out"] is True
        assert effective * 1000 <= ran.raw["duration_ms"] < effective * 1000 + 8000, (asked, ran.raw["duration_ms"])


def test_a_limit_above_the_default_is_kept(client: OneshotClient) -> None:
    assert client.run("bash", "sleep 1; echo slept", timeout_secs=300).raw["stdout"] == "slept\n"


def test_a_large_stream_is_cut_in_the_middle_and_saved_whole(client: OneshotClient) -> None:
    ran = client.run("python", "print('head'); print('x' * 300000); print('tail')")
    whole = f"head\n{'x' * 300000}\ntail\n"
    assert ran.raw["output_truncated"] is True
    assert ran.raw["stdout"].startswith("head\n")
    assert ran.raw["stdout"].endswith("tail\n")
    assert len(ran.raw["stdout"].encode()) <= 65536 + 300
    assert str(len(whole) - 65536) in ran.raw["stdout"] or "stdout.txt" in ran.raw["stdout"]
    assert ran.artifacts["stdout.txt"].data.decode() == whole
    noisy = client.run("bash", "head -c 200000 /dev/zero | tr '\\0' y >&2")
    assert (noisy.raw["output_truncated"], len(noisy.artifacts["stderr.txt"].data)) == (True, 200000)


def test_a_middling_stream_is_saved_and_not_cut(client: OneshotClient) -> None:
    ran = client.run("python", "print('y' * 40000)")
    assert (ran.raw["stdout"], ran.raw["output_truncated"]) == ("y" * 40000 + "\n", False)
    assert ran.artifacts["stdout.txt"].data == b"y" * 40000 + b"\n"
    small = client.run("python", "print('y' * 30000)")
    assert small.artifacts == {}


def test_cuts_fall_on_whole_characters(client: OneshotClient) -> None:
    ran = client.run("python", "print('a' + '名' * 60000)")
    assert ran.raw["output_truncated"] is True
    assert "\N{REPLACEMENT CHARACTER}" not in ran.raw["stdout"]


def test_the_budget_of_streams_is_set_for_both(small: OneshotClient) -> None:
    ran = small.run("python", "import sys; print('x' * 5000); sys.stderr.write('y' * 900)")
    assert ran.raw["output_truncated"] is True
    assert ran.raw["stderr"] == "y" * 900
    assert 600 <= len(ran.raw["stdout"]) <= 1000 + 300


def test_the_model_gets_a_preview_of_a_saved_stream(turn: Turn) -> None:
    told = turn.run("python", "print('first'); print('z' * 100000); print('last')")
    assert told["stdout"]["truncated"] is True
    assert len(told["stdout"]["preview"]) <= 4096
    assert told["stdout"]["preview"].startswith("first\n")
    assert told["stdout"]["preview"].endswith("last\n")


def test_a_child_that_holds_the_output_does_not_hold_the_run(client: OneshotClient) -> None:
    ran = client.run("bash", "sleep 100 & echo started", timeout_secs=30)
    assert (ran.raw["stdout"], ran.raw["timed_out"]) == ("started\n", False)


def test_bytes_that_are_no_text(client: OneshotClient) -> None:
    ran = client.run("bash", "printf '\\377\\376 ok\\n'")
    assert "ok" in ran.raw["stdout"]
    assert ran.raw["exit_code"] == 0
