"""The file of keys: what is read, and refusals that name entry and field and repeat no value."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from runner.api import key_file
from runner.api.keys import Key, KeyLimits
from runner.errors import ConfigurationError

HASH = "ab" * 32


def entry(**fields: Any) -> dict[str, Any]:
    """A good entry with some fields replaced; ``...`` leaves one out."""
    found = {"name": "gateway", "sha256": HASH, "tenant": "acme", **fields}
    return {name: value for name, value in found.items() if value is not ...}


def document(*entries: Any) -> bytes:
    return json.dumps({"keys": entries}).encode()


def test_an_entry_in_full_and_in_short() -> None:
    limits = {"requests_per_minute": 60, "concurrent_requests": 4, "sandboxes": 2, "upload_bytes": 1000}
    full = entry(scopes=["metrics", "read"], limits=limits, expires_at="2027-01-31T01:00:00+01:00")
    (key,) = key_file.parse(document(full))
    end = datetime(2027, 1, 31, tzinfo=UTC)
    assert key == Key("gateway", "acme", HASH, frozenset(("read", "metrics")), KeyLimits(60, 4, 2, 1000), end)
    assert (key.expired(end.timestamp() - 1), key.expired(end.timestamp())) == (False, True)
    (short,) = key_file.parse(document(entry()))
    assert short == Key("gateway", "acme", HASH, frozenset(("read", "write", "run")))
    assert not short.expired(2**40)


def test_what_is_written_is_read_again() -> None:
    time = datetime(2027, 1, 31, 12, tzinfo=UTC)
    keys = (
        Key("a", "t", HASH, frozenset(("metrics",)), KeyLimits(sandboxes=3), time, time),
        Key("b", "t", "cd" * 32),
    )
    assert key_file.parse(key_file.render(keys)) == keys


WRONG: tuple[tuple[Any, str], ...] = (
    (entry(name=...), "keys[1].name is missing"),
    (entry(sha256=...), "keys[1].sha256 is missing"),
    (entry(tenant=...), "keys[1].tenant is missing"),
    (entry(name=""), "keys[1].name must be"),
    (entry(name="a\n"), "keys[1].name must be"),
    (entry(name=7), "keys[1].name must be"),
    (entry(tenant="../x"), "keys[1].tenant must be"),
    (entry(tenant="x" * 65), "keys[1].tenant must be"),
    (entry(tenant="system"), "keys[1].tenant is a name that the runner keeps"),
    (entry(sha256=HASH.upper()), "keys[1].sha256 must be 64 lower-case hex"),
    (entry(sha256="fbx_secret"), "keys[1].sha256 must be 64 lower-case hex"),
    (entry(scopes=[]), "keys[1].scopes must be"),
    (entry(scopes=["admin"]), "keys[1].scopes must be"),
    (entry(scopes=["read", "read"]), "keys[1].scopes must be"),
    (entry(scopes="read"), "keys[1].scopes must be"),
    (entry(scopes=[["read"]]), "keys[1].scopes must be"),
    (entry(limits=[]), "keys[1].limits must be an object"),
    (entry(limits={"speed": 1}), "keys[1].limits has an unknown field"),
    (entry(limits={"sandboxes": 0}), "keys[1].limits.sandboxes must be"),
    (entry(limits={"sandboxes": True}), "keys[1].limits.sandboxes must be"),
    (entry(limits={"requests_per_minute": 1.5}), "keys[1].limits.requests_per_minute must be"),
    (entry(limits={"upload_bytes": "1g"}), "keys[1].limits.upload_bytes must be"),
    (entry(limits={"upload_bytes": 10**300}), "keys[1].limits.upload_bytes must be"),
    (entry(expires_at="2027-01-31"), "keys[1].expires_at must be"),
    (entry(expires_at="2027-01-31T00:00:00"), "keys[1].expires_at must be"),
    (entry(expires_at="0001-01-01T00:00:00+14:00"), "keys[1].expires_at must be"),
    (entry(expires_at=1800000000), "keys[1].expires_at must be"),
    (entry(created_at="now"), "keys[1].created_at must be"),
    (entry(secret="x"), "keys[1] has an unknown field"),
    (entry(name="first", sha256="cd" * 32), "keys[1].name is that of keys[0]"),
    (entry(sha256="00" * 32), "keys[1].sha256 is that of keys[0]"),
    ("x", "keys[1] must be an object"),
)


@pytest.mark.parametrize(("item", "told"), WRONG, ids=[f"{n}-{told[:30]}" for n, (_, told) in enumerate(WRONG)])
def test_a_wrong_entry_is_named(item: Any, told: str) -> None:
    with pytest.raises(key_file.Wrong) as caught:
        key_file.parse(document(entry(name="first", sha256="00" * 32), item))
    assert told in str(caught.value)
    assert "fbx_secret" not in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"keys": {}}',
        b'{"keys": [], "more": 1}',
        b'{"keys": [], "keys": []}',
        b'{"keys": ["\xff"]}',
        b'{"keys": [' + b"1" * 5000 + b"]}",
        b"[" * 100_000,
        b" " * (key_file.MAX_BYTES + 1),
    ],
    ids=lambda raw: ascii(raw[:24]),
)
def test_what_is_no_document_of_keys(raw: bytes) -> None:
    with pytest.raises(key_file.Wrong):
        key_file.parse(raw)


def stored(folder: Path, mode: int = 0o600) -> Path:
    path = folder / "keys.json"
    path.write_bytes(document(entry()))
    path.chmod(mode)
    return path


def test_a_file_of_keys_is_read(tmp_path: Path) -> None:
    for mode in (0o400, 0o600, 0o640, 0o644):
        assert len(key_file.read(stored(tmp_path, mode))[0]) == 1


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigurationError, match="others may write"):
        key_file.read(stored(tmp_path, mode))


def test_a_file_in_a_folder_that_all_can_change_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(ConfigurationError, match="folder"):
        key_file.read(path)
    tmp_path.chmod(0o1777)
    assert key_file.read(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: gives a file to another user")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path)
    os.chown(path, 12345, 12345)
    with pytest.raises(ConfigurationError, match="another user"):
        key_file.read(path)


def test_no_file_a_folder_and_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for name, told in (("none", "No such file"), ("", "no regular file"), ("pipe", "no regular file")):
        with pytest.raises(ConfigurationError, match=told) as caught:
            key_file.read(tmp_path / name)
        assert "SANDBOX_API_KEYS_FILE" in caught.value.detail
