"""Keys of callers: what one looks like, and what is kept of it.

A key is ``fbx_``, then 256 random bits as 43 characters of base 62, then their CRC-32 as 6 more. Prefix and
checksum are those of GitHub's tokens (their article of April 2021 on token formats): scanners for leaked secrets
recognise the one, and the other tells a mistyped key from an unknown one.

Of a key only its SHA-256 is kept, without salt and without stretching. Slow hashes such as Argon2 are for secrets
that people choose, which can be guessed; 256 random bits cannot, however fast the hash is (NIST SP 800-63B,
5.1.2.2: look-up secrets of at least 112 bits need an approved one-way function and no salt). A slow hash would
also let anybody without a key keep the processor busy, for it is paid at each request.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import string
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from runner.api import scopes

PREFIX: Final = "fbx_"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RESERVED_TENANTS: Final = frozenset(("system",))  # the runner's own records lie there

_DIGITS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM, _CHECK = 43, 6  # 62 ** 43 > 2 ** 256, 62 ** 6 > 2 ** 32
_FORM: Final = re.compile(rb"fbx_[0-9A-Za-z]{49}")


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of one key; None: the deployment's alone. ``sandboxes`` counts the live ones of the whole tenant."""

    requests_per_minute: int | None = None
    concurrent_requests: int | None = None
    sandboxes: int | None = None
    upload_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key: never the key itself. ``sha256`` is of the whole key, in hex."""

    name: str
    tenant: str
    sha256: str = field(repr=False)
    scopes: frozenset[str] = scopes.DEFAULT
    limits: KeyLimits = KeyLimits()
    expires_at: datetime | None = None
    created_at: datetime | None = None

    def expired(self, now: float) -> bool:
        """Whether it has ended at ``now``, in seconds since 1970."""
        return self.expires_at is not None and now >= self.expires_at.timestamp()


def new_secret() -> str:
    """A fresh key."""
    body = _base62(secrets.randbits(256), _RANDOM)
    return PREFIX + body + _checksum(body.encode()).decode()


def hashed(secret: bytes) -> str:
    """What is kept of a key."""
    return hashlib.sha256(secret).hexdigest()


def mistyped(secret: bytes) -> bool:
    """Whether this was meant to be one of our keys and cannot be one."""
    if not secret.startswith(PREFIX.encode()):
        return False
    return not _FORM.fullmatch(secret) or _checksum(secret[len(PREFIX) : -_CHECK]) != secret[-_CHECK:]


def _checksum(body: bytes) -> bytes:
    return _base62(zlib.crc32(body), _CHECK).encode()


def _base62(number: int, width: int) -> str:
    digits = []
    for _ in range(width):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
