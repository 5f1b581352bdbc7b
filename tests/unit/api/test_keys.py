"""One key: 256 random bits that can be told from a mistyped key, and of which only a hash is kept."""

from __future__ import annotations

import re

from runner.api.keys import Key, hashed, mistyped, new_secret


def test_a_key_has_a_prefix_and_is_new_each_time() -> None:
    made = {new_secret() for _ in range(200)}
    assert len(made) == 200
    assert all(re.fullmatch(r"fbx_[0-9A-Za-z]{49}", secret) for secret in made)
    assert not any(mistyped(secret.encode()) for secret in made)


def test_all_of_the_random_bits_are_in_it() -> None:
    first = {new_secret()[4] for _ in range(400)}
    assert 40 < len({new_secret()[20] for _ in range(1000)}) <= 62
    assert first <= set("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
    assert len(first) > 20


def test_every_single_typing_error_is_seen() -> None:
    secret = new_secret().encode()
    for at in range(4, len(secret)):
        for other in b"0aZ":
            if secret[at] != other:
                assert mistyped(secret[:at] + bytes((other,)) + secret[at + 1 :])
        assert at + 1 == len(secret) or mistyped(secret[: at + 1])
    assert mistyped(secret + b"x")
    assert mistyped(b"fbx_")
    assert mistyped(b"fbx_" + b"\xff" * 49)


def test_keys_of_other_forms_are_not_called_mistyped() -> None:
    assert not mistyped(b"0123456789abcdef0123456789abcdef")
    assert not mistyped(b"")


def test_neither_key_nor_hash_is_shown() -> None:
    secret = new_secret()
    key = Key("gateway", "acme", hashed(secret.encode()))
    assert secret not in repr(key)
    assert hashed(secret.encode()) not in repr(key)
    assert "gateway" in repr(key)
