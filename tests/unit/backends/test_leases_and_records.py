"""Host uids are held once at a time over all runners; records survive what cannot be ended."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from runner.backends import leases, records
from runner.backends.unisolated import backend
from runner.errors import BackendUnavailable


def test_no_two_leases_share_a_uid(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([7, 7, 8, 7])
    monkeypatch.setattr("secrets.randbelow", lambda _: next(draws))
    first, second = leases.take_uid(), leases.take_uid()
    try:
        assert (first.uid, second.uid) == (leases.UID_BASE + 7, leases.UID_BASE + 8)
        first.release()
        first.release()
        again = leases.take_uid()
        assert again.uid == leases.UID_BASE + 7
        again.release()
    finally:
        second.release()


def test_a_lease_of_another_runner_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.randbelow", lambda _: 9)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(f"\0foliobox-uid-{leases.UID_BASE + 9}")
        with pytest.raises(BackendUnavailable, match="uid"):
            leases.take_uid()


def test_records_that_could_not_be_ended_stay(tmp_path: Path) -> None:
    for name in ("a", "b"):
        records.write(tmp_path / "run", name, {"uid": 1})
    ended: list[str] = []

    def end(name: str, content: records.Json) -> bool:
        ended.append(f"{name}{content['uid']}")
        return name == "a"

    assert records.sweep(tmp_path / "run", end) == 1
    assert ended == ["a1", "b1"]
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["b.json"]


def test_half_a_record_does_not_stop_the_start_and_ends_nothing(tmp_path: Path) -> None:
    """It does not say whose it is: what it stood for may live."""
    (tmp_path / "x.json").write_text('{"groups": ["/sys')
    (tmp_path / "y.part").write_text("{")
    assert records.sweep(tmp_path, never) == 0
    assert list(tmp_path.iterdir()) == []


def test_records_of_a_copy_are_forgotten_and_those_of_a_moved_folder_count(tmp_path: Path) -> None:
    records.write(tmp_path / "a" / "run", "x", {})
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copy2)
    assert records.sweep(tmp_path / "b" / "run", never) == 0
    assert list((tmp_path / "b" / "run").iterdir()) == []
    (tmp_path / "a").rename(tmp_path / "moved")
    assert records.sweep(tmp_path / "moved" / "run", lambda *_: True) == 1


def test_records_count_where_the_device_has_another_number_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records.write(tmp_path, "x", {})
    stat = Path.stat

    def elsewhere(path: Path, **options: bool) -> os.stat_result:
        facts = list(stat(path, **options))
        facts[2] += 1
        return os.stat_result(facts)

    monkeypatch.setattr(Path, "stat", elsewhere)
    assert records.sweep(tmp_path, lambda *_: True) == 1


def test_a_record_whose_runner_lives_stays_until_it_has_died(tmp_path: Path) -> None:
    script = "import pathlib, sys; from runner.backends import records\n"
    script += "records.write(pathlib.Path(sys.argv[1]), 'x', {}); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, str(tmp_path / "run")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"\n"
        assert records.sweep(tmp_path / "run", never) == 0
        assert (tmp_path / "run" / "x.json").exists()
        owner.kill()
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
        assert records.sweep(tmp_path / "run", lambda *_: True) == 1


def never(name: str, content: records.Json) -> bool:
    raise AssertionError(f"{name} is another's: {content}")


def test_a_uid_that_was_given_out_again_is_not_held() -> None:
    lease = leases.take_uid()
    assert leases.hold_uid(lease.uid) is None
    lease.release()
    again = leases.hold_uid(lease.uid)
    assert again is not None
    again.release()


@pytest.mark.parametrize("held", [False, True])
def test_a_leftovers_uid_counts_only_while_nobody_has_it(monkeypatch: pytest.MonkeyPatch, held: bool) -> None:
    asked = []

    class Asked:
        def __init__(self, sandbox_id: str, root: int, uid: int | None) -> None:
            asked.append((sandbox_id, root, uid))

        def kill(self) -> bool:
            return True

    monkeypatch.setattr(backend, "Family", Asked)
    lease = leases.take_uid()
    if not held:
        lease.release()
    assert backend._end_leftover("x", {"uid": lease.uid})
    assert asked == [("x", 0, None if held else lease.uid)]
    lease.release()


def test_folder_of_records_is_private(tmp_path: Path) -> None:
    records.write(tmp_path / "run", "a", {})
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
