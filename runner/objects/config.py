"""Settings of object storage: which hosts requests may name, how long a call may take, how large an archive may be."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runner import environment
from runner.objects.hosts import AllowedHosts

MIB: Final = 1 << 20
WEEK_S: Final = 604_800  # the longest that Signature Version 4 lets an address be valid


@dataclass(frozen=True, slots=True)
class ObjectsConfig:
    """Times in seconds. ``local_dir`` None: no provider ``local``. ``attempts`` counts the first one too."""

    hosts: AllowedHosts = field(default_factory=AllowedHosts)
    local_dir: Path | None = None
    attempts: int = 3
    connect_timeout_s: float = 10
    read_timeout_s: float = 120
    oss_connect_timeout_s: float = 30
    default_ttl_s: int = 3600
    max_ttl_s: int = 86_400
    max_archive_bytes: int = 200 * MIB
    archive_timeout_s: float = 120

    @classmethod
    def from_env(cls, env: environment.Env) -> ObjectsConfig:
        """Read from an environment. Raises ``ConfigurationError`` naming the variable and the accepted form."""
        return cls(
            hosts=AllowedHosts.parse(environment.text(env, "SANDBOX_STORAGE_HOSTS")),
            local_dir=environment.folder(env, "SANDBOX_LOCAL_STORAGE_DIR"),
            attempts=environment.integer(env, "SANDBOX_S3_MAX_ATTEMPTS", 3, minimum=1, maximum=100),
            connect_timeout_s=environment.number(env, "SANDBOX_S3_CONNECT_TIMEOUT_S", 10, minimum=0.1, maximum=3600),
            read_timeout_s=environment.number(env, "SANDBOX_S3_READ_TIMEOUT_S", 120, minimum=0.1, maximum=3600),
            oss_connect_timeout_s=environment.number(
                env, "SANDBOX_OSS_CONNECT_TIMEOUT_S", 30, minimum=0.1, maximum=3600
            ),
            default_ttl_s=environment.integer(env, "SANDBOX_STORAGE_DEFAULT_TTL", 3600, minimum=1, maximum=WEEK_S),
            max_ttl_s=environment.integer(env, "SANDBOX_STORAGE_MAX_TTL", 86_400, minimum=1, maximum=WEEK_S),
            max_archive_bytes=environment.size(env, "SANDBOX_MAX_ARCHIVE_BYTES", 200 * MIB, maximum=5 << 30),
            archive_timeout_s=environment.number(env, "SANDBOX_ARCHIVE_TIMEOUT_S", 120, minimum=0.1, maximum=86_400),
        )
