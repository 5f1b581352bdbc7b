"""``foliobox keys``: made once, listed without secrets, revoked; the file is replaced in one step."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from runner.api import key_file
from runner.api.keys import hashed, mistyped
from runner.cli.main import app
from runner.errors import ConfigurationError


def call(path: Path, *arguments: str) -> Result:
    """The command with its file given as an option."""
    return CliRunner().invoke(app, ["keys", *arguments, "--file", str(path)], env={"COLUMNS": "200"})


def made(path: Path, name: str, *more: str) -> str:
    """A new key."""
    done = call(path, "new", "--name", name, "--tenant", "acme", *more)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def refused(path: Path, *arguments: str) -> str:
    """What is told in one line."""
    done = call(path, *arguments)
    assert isinstance(done.exception, ConfigurationError), done.output
    assert "\n" not in done.exception.detail
    return done.exception.detail


def entries(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["keys"]
    return found


def test_a_new_key_is_printed_once_and_kept_as_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    done = call(path, "new", "--name", "gateway", "--tenant", "acme")
    secret = done.stdout.removesuffix("\n")
    assert not mistyped(secret.encode())
    assert len(secret) == 53
    assert secret not in done.stderr
    assert secret not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (entry,) = entries(path)
    assert entry["sha256"] == hashed(secret.encode())
    assert (entry["scopes"], entry["limits"], entry["expires_at"]) == (["read", "write", "run"], {}, None)
    for output in (call(path, "list").output, call(path, "revoke", "gateway").output):
        assert secret not in output
        assert hashed(secret.encode()) not in output


def test_everything_that_can_be_said_of_a_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    limits = ("--requests-per-minute", "60", "--concurrent", "4", "--sandboxes", "2", "--upload-bytes", "10m")
    made(path, "full", "--scope", "metrics", "--scope", "read", "--expires-in", "90d", *limits)
    ((key,), _) = key_file.read(path)
    assert key.scopes == {"metrics", "read"}
    assert (key.limits.requests_per_minute, key.limits.concurrent_requests) == (60, 4)
    assert (key.limits.sandboxes, key.limits.upload_bytes) == (2, 10 << 20)
    assert key.created_at is not None
    assert key.expires_at == key.created_at + timedelta(days=90)
    assert abs(key.created_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_the_list(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made(path, "one", "--scope", "read")
    made(path, "two", "--sandboxes", "3")
    old = entries(path)
    old[0]["expires_at"] = "2020-01-01T00:00:00Z"
    path.write_text(json.dumps({"keys": old}))
    head, one, two = call(path, "list").stdout.splitlines()
    assert head.split() == ["NAME", "TENANT", "SCOPES", "LIMITS", "CREATED", "EXPIRES"]
    assert one.split()[:4] == ["one", "acme", "read", "-"]
    assert one.endswith("2020-01-01 00:00Z (expired)")
    assert two.split()[:4] == ["two", "acme", "read,write,run", "sandboxes=3"]
    assert two.endswith("never")


def test_revoking(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made(path, "one")
    made(path, "two")
    assert call(path, "revoke", "one").exit_code == 0
    assert [entry["name"] for entry in entries(path)] == ["two"]
    assert "no key 'one'" in refused(path, "revoke", "one")
    assert call(path, "revoke", "two").exit_code == 0
    assert entries(path) == []
    assert made(path, "one")


def test_wrong_arguments_are_told_and_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made(path, "taken")
    before = path.read_bytes()
    good = ("new", "--name", "x", "--tenant", "t")
    for more, told in (
        (("--scope", "admin"), "read, write, run, metrics"),
        (("--expires-in", "soon"), "90d"),
        (("--expires-in", "0d"), "90d"),
        (("--upload-bytes", "lots"), "512m"),
        (("--name", "taken"), "already"),
        (("--name", "a b"), "--name must be"),
        (("--name", "x\n"), "--name must be"),
        (("--tenant", "../x"), "--tenant must be"),
        (("--tenant", "system"), "keeps this name"),
    ):
        assert told in refused(path, *good, *more)
    for option in ("--requests-per-minute", "--concurrent", "--sandboxes"):
        assert call(path, *good, option, "0").exit_code == 2
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["keys.json"]


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    assert "No such file" in refused(path, "list")
    assert "does not exist" in refused(path, "revoke", "x")
    (tmp_path / "file").write_text("")
    assert "folder" in refused(tmp_path / "file" / "keys.json", "new", "--name", "x", "--tenant", "t")
    path.write_text('{"keys": [{"name": "a"}]}')
    path.chmod(0o600)
    assert "keys[0].sha256 is missing" in refused(path, "new", "--name", "x", "--tenant", "t")
    assert path.read_text() == '{"keys": [{"name": "a"}]}'


def test_the_file_may_come_from_the_setting(tmp_path: Path) -> None:
    env = {"SANDBOX_API_KEYS_FILE": str(tmp_path / "keys.json")}
    done = CliRunner().invoke(app, ["keys", "new", "--name", "x", "--tenant", "t"], env=env)
    assert done.exit_code == 0
    assert len(entries(tmp_path / "keys.json")) == 1
    done = CliRunner().invoke(app, ["keys", "list"], env={"SANDBOX_API_KEYS_FILE": ""})
    assert "SANDBOX_API_KEYS_FILE" in str(done.exception)


def test_a_link_stays_a_link_and_owner_and_mode_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "keys.json", tmp_path / "keys.json"
    made(real, "one")
    link.symlink_to(real)
    real.chmod(0o640)
    before = real.stat()
    made(link, "two")
    assert link.is_symlink()
    after = real.stat()
    assert len(entries(real)) == 2
    assert after.st_ino != before.st_ino
    assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)


def test_a_change_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    made(path, "one")
    before = path.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert "No space left" in refused(path, "new", "--name", "two", "--tenant", "t")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["keys.json"]


def test_changes_at_a_time_are_all_kept(tmp_path: Path) -> None:
    """Two processes that read, then write, would lose one key without the lock on the folder."""
    path = tmp_path / "keys.json"
    made(path, "first")
    children = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for each in range(5):
                    made(path, f"k-{number}-{each}")
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
    assert len(entries(path)) == 21


def test_the_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "foliobox" / "keys.json"
    made(path, "one")
    assert len(entries(path)) == 1
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_key_that_ends_at_once_is_none(tmp_path: Path) -> None:
    told = refused(tmp_path / "k", "new", "--name", "n", "--tenant", "t", "--expires-in", "0d")
    assert "at least 1" in told
