"""Settings of the HTTP side: address, keys, limits of bodies."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runner import environment
from runner.errors import ConfigurationError

TENANT = "default"
MAX_KEY: Final = 1024
MAX_BODY: Final = "SANDBOX_MAX_BODY_BYTES"
BODY_MEMORY: Final = "SANDBOX_MAX_BODY_MEMORY"
BODY_TIMEOUT: Final = "SANDBOX_BODY_TIMEOUT_SECONDS"
MIN_BODY_RATE: Final = "SANDBOX_MIN_BODY_RATE"


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """``key`` and ``keys_file`` are both None only where no authentication was allowed explicitly."""

    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = field(default=None, repr=False)
    keys_file: Path | None = None
    allow_no_auth: bool = False
    public_docs: bool = False
    max_body_bytes: int = 56 << 20
    sessions_body_bytes: int = 0  # both as `max_body_bytes` where they are 0
    storage_body_bytes: int = 0
    max_upload_bytes: int = 256 << 20
    body_timeout_s: float = 30.0
    body_memory_bytes: int = 256 << 20
    min_body_rate: int = 1024
    max_upload_files: int = 1000
    link_secret: str | None = field(default=None, repr=False)
    open_oneshot: bool = False  # the one-shot surface asks for no key, here

    @classmethod
    def from_env(cls, env: environment.Env) -> ApiConfig:
        """``SANDBOX_BIND`` (``host:port``), ``SANDBOX_API_KEY``, ``_API_KEYS_FILE``, ``_ALLOW_NO_AUTH``,
        ``_PUBLIC_DOCS``, limits of bodies.
        """
        host, port = _bind(env.get("SANDBOX_BIND", "").strip() or "127.0.0.1:8000")
        return cls(
            host=host,
            port=port,
            key=env.get("SANDBOX_API_KEY", "").strip() or None,
            keys_file=environment.folder(env, "SANDBOX_API_KEYS_FILE"),
            allow_no_auth=environment.switch(env, "SANDBOX_ALLOW_NO_AUTH"),
            public_docs=environment.switch(env, "SANDBOX_PUBLIC_DOCS"),
            max_body_bytes=environment.size(env, MAX_BODY, 56 << 20),
            sessions_body_bytes=environment.size(
                env, "SANDBOX_SESSIONS_MAX_BODY_BYTES", environment.size(env, MAX_BODY, 56 << 20)
            ),
            storage_body_bytes=environment.size(env, "SANDBOX_MAX_STORAGE_BODY_BYTES", 300 << 20),
            max_upload_bytes=environment.size(env, "SANDBOX_MAX_UPLOAD_BYTES", 256 << 20),
            body_timeout_s=environment.number(env, BODY_TIMEOUT, 30.0, minimum=1.0),
            body_memory_bytes=environment.size(env, BODY_MEMORY, 256 << 20),
            min_body_rate=environment.size(env, MIN_BODY_RATE, 1024),
            max_upload_files=environment.integer(env, "SANDBOX_MAX_UPLOAD_FILES", 1000, minimum=1),
            link_secret=env.get("SANDBOX_LINK_SECRET", "").strip() or None,
        )

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def anonymous(self) -> bool:
        """Whether calls need no key, because there is none."""
        return self.key is None and self.keys_file is None

    @property
    def open_docs(self) -> bool:
        """Whether anybody may read the documentation of the API and its description."""
        return self.loopback or self.public_docs

    def check(self) -> None:
        """Refuse a service that anybody could use. Raises ConfigurationError."""
        if self.key is not None and len(self.key) > MAX_KEY:
            raise ConfigurationError(f"SANDBOX_API_KEY is longer than {MAX_KEY} characters: take a shorter one")
        if self.anonymous and not self.allow_no_auth:
            raise ConfigurationError(
                "SANDBOX_API_KEY is not set: set it, or SANDBOX_API_KEYS_FILE, or SANDBOX_ALLOW_NO_AUTH=1 on loopback"
            )
        if self.anonymous and not self.loopback:
            raise ConfigurationError(
                f"SANDBOX_ALLOW_NO_AUTH=1 works on loopback only, not on {self.host}: set SANDBOX_API_KEY or "
                "SANDBOX_API_KEYS_FILE"
            )


def _bind(raw: str) -> tuple[str, int]:
    host, _, port = raw.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigurationError(f"SANDBOX_BIND={raw!r} is not host:port, like 127.0.0.1:8000")
    return host.strip("[]"), int(port)
