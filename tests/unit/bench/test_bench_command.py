"""The command: which rows it chooses, its exit status, its table and its JSON."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import containers, report
from bench.lab import Lab
from bench.processes import anonymous_kib, children, tree
from bench.stats import Sample
from bench.targets import ROWS, Row


def _broken(_: Lab) -> Sample:
    raise RuntimeError("no engine here")


def test_rows_asked_for_bring_what_they_are_compared_with() -> None:
    assert [row.key for row in command._chosen(["warm"])] == ["jupyter_warm", "warm"]
    assert command._chosen([]) == list(ROWS)


def test_an_unknown_row_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--only", "wram"])
    assert ended.value.code == 2
    assert "there is no row 'wram'" in capsys.readouterr().err


def test_status_tells_whether_all_was_measured_and_never_how_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    peer = {"jupyter_warm": lambda _: Sample((4.0,))}
    monkeypatch.setattr(command, "MEASURES", {"warm": lambda _: Sample((9999.0,)), **peer})
    path = tmp_path / "sub" / "bench.json"
    assert command.main(["--only", "warm", "--json", str(path)]) == 0
    assert "over" in capsys.readouterr().out
    body = json.loads(path.read_text())
    assert [(row["row"], row["verdict"]) for row in body["rows"]] == [("jupyter_warm", "-"), ("warm", "over")]
    assert {"cores", "kernel", "python", "packages", "date", "load_average"} <= set(body["machine"])

    monkeypatch.setattr(command, "MEASURES", {"warm": _broken, **peer})
    assert command.main(["--only", "warm", "--json", str(path)]) == 1
    assert "warm: not measured: RuntimeError: no engine here" in capsys.readouterr().out
    assert json.loads(path.read_text())["rows"][1]["failed"] == "RuntimeError: no engine here"


def test_table_has_a_line_a_row_with_ratio_and_note() -> None:
    rows = [Row("floor", "the floor"), Row("mine", "what is mine", 3, against="floor")]
    text = report.table(rows, {"floor": Sample((2.0,)), "mine": Sample((5.0, 5.0), "noisy")}, {})
    lines = text.splitlines()
    assert lines[0].split() == ["row", "what", "min", "p50", "p95", "unit", "n", "target", "ratio", "verdict"]
    assert lines[3].endswith("p50 ≤ 3  2.50 × floor  over")
    assert lines[4] == "mine: noisy"


@pytest.mark.parametrize(("value", "shown"), [(0.1234, "0.12"), (9.876, "9.88"), (12.34, "12.3"), (1234.5, "1234")])
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert report.number(value) == shown


def test_processes_are_found_below_their_parent() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert process.pid in children(os.getpid())
        assert process.pid in tree(os.getpid())
        assert tree(process.pid) == [process.pid]
        assert anonymous_kib(os.getpid()) > 1000
        process.kill()


def test_two_views_of_one_measurement_share_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    calls: list[int] = []

    def work() -> int:
        calls.append(1)
        return 7

    assert (lab.once("a", work), lab.once("a", work), len(calls)) == (7, 7, 1)


def test_rows_of_an_engine_that_does_not_answer_are_left_out_and_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "MEASURES", {"docker_run": lambda _: Sample((4.0,))})
    path = tmp_path / "bench.json"
    monkeypatch.setattr(containers, "missing", lambda: "no daemon answers")
    assert command.main(["--only", "docker_run", "--json", str(path)]) == 0
    assert "left out: no daemon answers" in capsys.readouterr().out
    assert json.loads(path.read_text())["rows"] == []
    monkeypatch.setattr(containers, "missing", lambda: "")
    assert command.main(["--only", "docker_run", "--json", str(path)]) == 0
    assert [row["row"] for row in json.loads(path.read_text())["rows"]] == ["docker_run"]
