"""Host uids are held once at a time over all runners; records survive what cannot be ended."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from runner.backends import leases, records
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


def test_half_a_record_does_not_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"groups": ["/sys')
    (tmp_path / "y.part").write_text("{")
    assert records.sweep(tmp_path, lambda name, content: (name, content) == ("x", {})) == 1
    assert list(tmp_path.iterdir()) == []


def test_folder_of_records_is_private(tmp_path: Path) -> None:
    records.write(tmp_path / "run", "a", {})
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
