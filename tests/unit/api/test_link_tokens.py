"""Tokens of links: one that was made is read back; none can be changed, stretched or guessed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from runner.api.links import Grant, LinkSigner, load_secret, open_signer
from runner.errors import ConfigurationError, NotFound

GRANT = Grant("acme", "report-7", "0000000001", "outputs/bericht ü.pdf", "a" * 64, None, "inline", 1000)


def signer(secret: bytes = b"s" * 32, at: float = 0.0) -> LinkSigner:
    return LinkSigner(secret, lambda: at)


def test_a_token_says_what_it_grants() -> None:
    token = signer().token(GRANT)
    assert signer(at=999.9).grant(token) == GRANT
    assert token.isascii() and set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


def test_expiry_and_other_secrets() -> None:
    token = signer().token(GRANT)
    for other in (signer(at=1000.0), signer(b"t" * 32), signer(at=1e12)):
        with pytest.raises(NotFound):
            other.grant(token)
    assert signer(at=10.5).expiry(1500) == 12
    assert signer(at=10.7).expiry(1500) == 13


def test_every_changed_character_voids_it() -> None:
    token = signer().token(GRANT)
    for at in range(len(token)):
        for other in "A.-é":
            changed = token[:at] + other + token[at + 1 :]
            if changed != token:
                with pytest.raises(NotFound):
                    signer().grant(changed)


@pytest.mark.parametrize("token", ["", ".", "a.b", "a", "..", "x" * 100_000, "é.é", "\ud800"])
def test_rubbish(token: str) -> None:
    with pytest.raises(NotFound) as raised:
        signer().grant(token)
    with pytest.raises(NotFound) as expired:
        signer(at=2000).grant(signer().token(GRANT))
    assert raised.value.detail == expired.value.detail


def test_the_secret_is_made_once_and_only_for_this_user(tmp_path: Path) -> None:
    secret = load_secret(tmp_path)
    assert load_secret(tmp_path) == secret
    assert len(secret) >= 32
    assert os.listdir(tmp_path) == ["link.key"]
    assert stat.S_IMODE((tmp_path / "link.key").stat().st_mode) == 0o600
    assert load_secret(tmp_path.parent) != secret
    (tmp_path.parent / "link.key").unlink()


def test_a_secret_that_others_can_read_or_that_is_damaged_stops_the_start(tmp_path: Path) -> None:
    load_secret(tmp_path)
    (tmp_path / "link.key").chmod(0o644)
    with pytest.raises(ConfigurationError, match="other users"):
        load_secret(tmp_path)
    (tmp_path / "link.key").write_bytes(b"")
    (tmp_path / "link.key").chmod(0o600)
    with pytest.raises(ConfigurationError, match="damaged"):
        load_secret(tmp_path)
    (tmp_path / "link.key").unlink()
    (tmp_path / "link.key").symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError):
        load_secret(tmp_path)


def test_a_secret_of_the_operator(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="at least 32"):
        open_signer("short", tmp_path)
    token = open_signer("o" * 32, tmp_path).token(Grant("a", "b", "1", "p", "c" * 64, 3, "attachment", 1 << 40))
    assert open_signer("o" * 32, tmp_path / "other").grant(token).version == 3
    assert os.listdir(tmp_path) == []
