"""Signed links: whoever has one may get one content of one file until it expires, without a key.

A token is what it grants, as JSON, with an HMAC-SHA-256 behind it, both in base64url. It says which incarnation of
a conversation it is for, so that it dies when that is purged, and which content, so that it never gives another one.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from runner.errors import ConfigurationError, NotFound

LINK_SECRET: Final = "SANDBOX_LINK_SECRET"  # noqa: S105  # the name, not the secret
MIN_SECRET: Final = 32
MAX_TOKEN: Final = 8 << 10
_FILE: Final = "link.key"
_PURPOSE: Final = b"foliobox link 1"
_UNKNOWN: Final = "the link is not known here, or it has expired: ask for a new one"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a link gives. ``expires_at`` in seconds since 1970; ``version`` is None for the file as it is."""

    tenant: str
    conversation: str
    incarnation: str
    path: str
    sha256: str
    version: int | None
    disposition: Literal["attachment", "inline"]
    expires_at: int


class LinkSigner:
    """Makes and reads tokens with one key."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret, _PURPOSE, hashlib.sha256)
        self._clock = clock

    def token(self, grant: Grant) -> str:
        """The token of a grant."""
        payload = _encode(json.dumps(list(asdict(grant).values()), separators=(",", ":")).encode())
        return f"{payload}.{self._signature(payload)}"

    def grant(self, token: str) -> Grant:
        """What a token grants. Raises NotFound, with the same text for every reason."""
        payload, _, signature = token.partition(".")
        if (
            len(token) > MAX_TOKEN
            or not token.isascii()
            or not hmac.compare_digest(signature, self._signature(payload))
        ):
            raise NotFound(_UNKNOWN)
        found = Grant(*json.loads(_decode(payload)))
        if found.expires_at <= self._clock():
            raise NotFound(_UNKNOWN)
        return found

    def expiry(self, after_ms: int) -> int:
        """The moment that many milliseconds from now, in whole seconds since 1970, rounded up."""
        return -int(-(self._clock() + after_ms / 1000) // 1)

    def _signature(self, payload: str) -> str:
        return _encode(hmac.digest(self._key, payload.encode(), hashlib.sha256))


def unknown() -> NotFound:
    """The error for a link whose file, content or conversation is gone: the same as for one that never was."""
    return NotFound(_UNKNOWN)


def open_signer(secret: str | None, data_dir: Path) -> LinkSigner:
    """The signer of a deployment, with the secret that was set or its own. Raises ConfigurationError."""
    check_secret(secret, data_dir)
    return LinkSigner(load_secret(data_dir) if secret is None else secret.encode("utf-8", "surrogateescape"))


def check_secret(secret: str | None, data_dir: Path) -> None:
    """Whether the secret that was set, or the one there is already, can be used; makes none.

    Raises ConfigurationError.
    """
    if secret is not None and len(secret) < MIN_SECRET:
        raise ConfigurationError(
            f"{LINK_SECRET} has {len(secret)} characters: use at least {MIN_SECRET} random ones", setting=LINK_SECRET
        )
    if secret is None and os.path.lexists(data_dir / _FILE):
        load_secret(data_dir)


def load_secret(data_dir: Path) -> bytes:
    """The deployment's own secret: made at the first start, durable before it is used, readable by this user only.

    Raises ConfigurationError.
    """
    path = data_dir / _FILE
    try:
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        _make(data_dir, path)
        return _read(path)
    except OSError as error:
        raise ConfigurationError(
            f"{str(path)!r} cannot hold the secret of links ({error.strerror}); set {LINK_SECRET}, or repair it",
            cause=repr(error),
        ) from error


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        secret = os.read(fd, 256)
        if os.fstat(fd).st_mode & 0o077:
            raise ConfigurationError(f"{str(path)!r} can be read by other users: delete it, or chmod 600 it")
    finally:
        os.close(fd)
    if len(secret) < MIN_SECRET:
        raise ConfigurationError(f"{str(path)!r} is damaged: delete it, then links made before are void")
    return secret


def _make(folder: Path, path: Path) -> None:
    """Written beside and linked in, so that a file that was not written whole is never found."""
    draft = folder / f"{_FILE}.{secrets.token_hex(8)}"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, secrets.token_hex(32).encode())
        os.fsync(fd)
        with contextlib.suppress(FileExistsError):  # another runner was faster: its secret counts
            os.link(draft, path)
    finally:
        os.close(fd)
        os.unlink(draft)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        raise NotFound(_UNKNOWN) from None
