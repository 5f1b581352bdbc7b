"""Keys in memory: found by hash, expired by the clock, and kept equal to a file that changes."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

from runner.api import key_file
from runner.api.config import ApiConfig
from runner.api.keyring import CHECK_S, Keyring
from runner.api.keys import Key, KeyLimits, hashed, new_secret
from runner.errors import ConfigurationError, Unauthorized

FIXED = "the-key-of-the-environment"
NOW = datetime(2027, 1, 1, tzinfo=UTC)


class Lab:
    """A keyring on a file, with clocks that the test moves."""

    def __init__(self, folder: Path, *keys: Key, **config: Any) -> None:
        self.path = folder / "keys.json"
        self.clock, self.now = 0.0, NOW.timestamp()
        self.write(*keys)
        settings = ApiConfig(keys_file=self.path, **config)
        self.ring = Keyring(settings, lambda: self.clock, lambda: self.now)

    def write(self, *keys: Key) -> None:
        self.write_raw(key_file.render(keys))

    def write_raw(self, content: bytes) -> None:
        part = self.path.with_suffix(".part")
        part.write_bytes(content)
        part.chmod(0o600)
        os.rename(part, self.path)

    def later(self, seconds: float = CHECK_S) -> None:
        self.clock += seconds
        self.now += seconds

    def known(self, secret: str) -> bool:
        try:
            return bool(self.ring.find(secret.encode()).key)
        except Unauthorized:
            return False


def key(name: str, secret: str, **fields: Any) -> Key:
    return replace(Key(name, "acme", hashed(secret.encode())), **fields)


def test_a_key_is_found_and_others_are_not(tmp_path: Path) -> None:
    one, two = new_secret(), new_secret()
    lab = Lab(tmp_path, key("one", one), key("two", two, tenant="other"), key=FIXED)
    assert lab.ring.find(one.encode()).key.name == "one"
    assert lab.ring.find(two.encode()).key.tenant == "other"
    fixed = lab.ring.find(FIXED.encode()).key
    assert (fixed.tenant, len(fixed.scopes)) == ("default", 4)
    for wrong in (new_secret(), hashed(one.encode()), one[:-1], one + " ", "", FIXED.upper(), "0" * 64):
        assert not lab.known(wrong)
    with pytest.raises(Unauthorized, match="mistyped"):
        lab.ring.find(one[:-1].encode())


def test_a_key_ends_at_its_time(tmp_path: Path) -> None:
    secret = new_secret()
    lab = Lab(tmp_path, key("one", secret, expires_at=datetime(2027, 1, 1, 0, 0, 2, tzinfo=UTC)))
    assert lab.known(secret)
    lab.later(1.9)
    assert lab.known(secret)
    lab.later(0.1)
    with pytest.raises(Unauthorized, match="expired"):
        lab.ring.find(secret.encode())


def test_keys_come_and_go_with_the_file(tmp_path: Path) -> None:
    one, two = new_secret(), new_secret()
    lab = Lab(tmp_path, key("one", one))
    lab.write(key("two", two))
    assert (lab.known(one), lab.known(two)) == (True, False)
    lab.later()
    assert (lab.known(one), lab.known(two)) == (False, True)
    lab.write()  # the last one revoked: nobody may call, but the service goes on
    lab.later()
    assert not lab.known(two)


def test_a_change_within_one_tick_of_the_clock_is_seen(tmp_path: Path) -> None:
    """Same size, same inode, same times: only reading it again can tell."""
    one, two = new_secret(), new_secret()
    lab = Lab(tmp_path, key("aaa", one))
    lab.now = os.stat(lab.path).st_mtime + 0.01
    lab.later()
    lab.now = os.stat(lab.path).st_mtime + 0.01
    assert lab.known(one)
    before = os.stat(lab.path)
    lab.path.write_bytes(key_file.render([key("aaa", two)]))
    os.utime(lab.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(lab.path).st_size == before.st_size
    lab.later()
    assert (lab.known(one), lab.known(two)) == (False, True)


@pytest.mark.parametrize("content", [b"", b"{", b'{"keys": [{}]}'])
def test_a_broken_file_keeps_the_old_keys_and_is_told_once(tmp_path: Path, content: bytes) -> None:
    one, two = new_secret(), new_secret()
    lab = Lab(tmp_path, key("one", one))
    with structlog.testing.capture_logs() as lines:
        lab.write_raw(content)
        for _ in range(3):
            lab.later()
            assert lab.known(one)
        lab.path.unlink()
        lab.later()
        assert lab.known(one)
        lab.write(key("two", two))
        lab.later()
        assert (lab.known(one), lab.known(two)) == (False, True)
    told = [line for line in lines if line["log_level"] == "error"]
    assert len(told) == 2
    assert all("cannot be used" in line["event"] for line in told)


def test_a_file_that_others_may_change_is_not_taken(tmp_path: Path) -> None:
    one, two = new_secret(), new_secret()
    lab = Lab(tmp_path, key("one", one))
    lab.write(key("two", two))
    lab.path.chmod(0o666)
    lab.later()
    assert (lab.known(one), lab.known(two)) == (True, False)
    lab.path.chmod(0o600)
    lab.later()
    assert (lab.known(one), lab.known(two)) == (False, True)


def test_nothing_is_read_again_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = new_secret()
    lab = Lab(tmp_path, key("one", secret))
    lab.now = os.stat(lab.path).st_ctime + 10
    lab.later()
    assert lab.known(secret)

    def never(path: Path) -> Any:
        raise AssertionError(path)

    monkeypatch.setattr(key_file, "read", never)
    for _ in range(5):
        lab.later()
        assert lab.known(secret)


def test_what_was_used_stays_used_when_the_file_is_read_again(tmp_path: Path) -> None:
    secret = new_secret()
    one = key("one", secret, limits=KeyLimits(requests_per_minute=5))
    lab = Lab(tmp_path, one)
    quota = lab.ring.find(secret.encode()).quota
    lab.write(one, key("two", new_secret()))
    lab.later()
    assert lab.ring.find(secret.encode()).quota is quota
    lab.write(replace(one, limits=KeyLimits(requests_per_minute=6)))
    lab.later()
    assert lab.ring.find(secret.encode()).quota is not quota


def test_the_lowest_limit_of_a_tenants_keys_counts(tmp_path: Path) -> None:
    limits = ((3, "acme"), (2, "acme"), (None, "acme"), (None, "free"))
    keys = [
        key(f"k{n}", new_secret(), tenant=tenant, limits=KeyLimits(sandboxes=count))
        for n, (count, tenant) in enumerate(limits)
    ]
    lab = Lab(tmp_path, *keys)
    assert [lab.ring.tenant_limit(tenant) for tenant in ("acme", "free", "nobody")] == [2, None, None]
    lab.write(keys[0])
    lab.later()
    assert lab.ring.tenant_limit("acme") == 3


def test_starts_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds none"):
        Lab(tmp_path)
    with pytest.raises(ConfigurationError, match=r"keys\[0\]\.sha256 is that of SANDBOX_API_KEY"):
        Lab(tmp_path, key("same", FIXED), key=FIXED)
    with pytest.raises(ConfigurationError, match="No such file"):
        Keyring(ApiConfig(key=FIXED, keys_file=tmp_path / "none"))
    assert Lab(tmp_path, key=FIXED).known(FIXED)


def test_a_readable_file_and_a_short_key_are_warned_of(tmp_path: Path) -> None:
    lab = Lab(tmp_path, key("one", new_secret()))
    lab.path.chmod(0o644)
    with structlog.testing.capture_logs() as lines:
        Keyring(ApiConfig(host="0.0.0.0", key="short", keys_file=lab.path))
        Keyring(ApiConfig(host="127.0.0.1", key="short"))
    assert [line["log_level"] for line in lines] == ["warning", "warning"]
    assert "short" not in str([line.get("key") for line in lines])


def test_one_tenant_is_served_where_a_wall_is_missing(tmp_path: Path) -> None:
    one, two, seen = new_secret(), new_secret(), new_secret()
    metrics = key("watcher", seen, tenant="ops", scopes=frozenset(("metrics",)))
    lab = Lab(tmp_path, key("one", one), key("two", two, tenant="other"))
    with pytest.raises(ConfigurationError, match="keys of 2 tenants"):
        lab.ring.confine()
    lab = Lab(tmp_path, key("one", one), metrics)
    lab.ring.confine()
    with structlog.testing.capture_logs() as told:
        for keys in ([key("one", one), key("two", two, tenant="other"), metrics], [key("two", two, tenant="other")]):
            lab.write(*keys)
            lab.later()
            assert lab.known(one)
            assert not lab.known(two)
    assert [line["log_level"] for line in told] == ["error"]  # the same complaint is told once
    lab.write(key("two", two))
    lab.later()
    assert lab.known(two)


def test_the_key_of_the_environment_is_of_a_tenant_too(tmp_path: Path) -> None:
    lab = Lab(tmp_path, key("one", new_secret()), key=FIXED)
    with pytest.raises(ConfigurationError, match="keys of 2 tenants"):
        lab.ring.confine()
    Lab(tmp_path, key("one", new_secret(), tenant="default"), key=FIXED).ring.confine()
