"""Settings of the HTTP side: address, keys, limits of bodies."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

from runner import environment
from runner.errors import ConfigurationError

TENANT = "default"
MAX_BODY: Final = "SANDBOX_MAX_BODY_BYTES"
BODY_MEMORY: Final = "SANDBOX_MAX_BODY_MEMORY"
BODY_TIMEOUT: Final = "SANDBOX_BODY_TIMEOUT_SECONDS"
MIN_BODY_RATE: Final = "SANDBOX_MIN_BODY_RATE"


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """``key`` is None only where no authentication was allowed explicitly."""

    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = field(default=None, repr=False)
    allow_no_auth: bool = False
    max_body_bytes: int = 56 << 20
    max_upload_bytes: int = 256 << 20
    body_timeout_s: float = 30.0
    body_memory_bytes: int = 256 << 20
    min_body_rate: int = 1024

    @classmethod
    def from_env(cls, env: environment.Env) -> ApiConfig:
        """``SANDBOX_BIND`` (``host:port``), ``SANDBOX_API_KEY``, ``SANDBOX_ALLOW_NO_AUTH``, limits of bodies."""
        host, port = _bind(env.get("SANDBOX_BIND", "").strip() or "127.0.0.1:8000")
        return cls(
            host=host,
            port=port,
            key=env.get("SANDBOX_API_KEY", "").strip() or None,
            allow_no_auth=environment.switch(env, "SANDBOX_ALLOW_NO_AUTH"),
            max_body_bytes=environment.size(env, MAX_BODY, 56 << 20),
            max_upload_bytes=environment.size(env, "SANDBOX_MAX_UPLOAD_BYTES", 256 << 20),
            body_timeout_s=environment.number(env, BODY_TIMEOUT, 30.0, minimum=1.0),
            body_memory_bytes=environment.size(env, BODY_MEMORY, 256 << 20),
            min_body_rate=environment.size(env, MIN_BODY_RATE, 1024),
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

    def check(self) -> None:
        """Refuse a service that anybody could use. Raises ConfigurationError."""
        if self.key is None and not self.allow_no_auth:
            raise ConfigurationError("SANDBOX_API_KEY is not set: set it, or SANDBOX_ALLOW_NO_AUTH=1 on loopback")
        if self.key is None and not self.loopback:
            raise ConfigurationError(
                f"SANDBOX_ALLOW_NO_AUTH=1 works on loopback only, not on {self.host}: set SANDBOX_API_KEY"
            )


def _bind(raw: str) -> tuple[str, int]:
    host, _, port = raw.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigurationError(f"SANDBOX_BIND={raw!r} is not host:port, like 127.0.0.1:8000")
    return host.strip("[]"), int(port)
