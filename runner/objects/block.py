"""The ``storage`` object of a request: where its objects lie, and with which credentials. Shows none of them.

Credentials live in memory only. What may be stored of a block is ``public()``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from runner.errors import InvalidRequest

DEFAULT_TENANT: Final = "default"
S3: Final = "s3"
OSS: Final = "aliyun_oss"
LOCAL: Final = "local"
PROVIDERS: Final = (S3, OSS, LOCAL)
_SECRET: Final = frozenset(("s3_access_key", "s3_secret_key", "oss_access_key_id", "oss_access_key_secret"))
_MAX_FIELD: Final = 4096


@dataclass(frozen=True, slots=True)
class StorageBlock:
    """All fields are strings, empty where the request had none. ``tenant`` is whose request it was.

    ``forgotten`` says that the request had credentials which were not stored: without it, what was stored of such a
    block would look like one that means the runner's own.
    """

    provider: str = ""
    prefix: str = ""
    s3_bucket: str = ""
    s3_region: str = ""
    s3_endpoint: str = ""
    oss_bucket: str = ""
    oss_endpoint: str = ""
    s3_access_key: str = field(default="", repr=False)
    s3_secret_key: str = field(default="", repr=False)
    oss_access_key_id: str = field(default="", repr=False)
    oss_access_key_secret: str = field(default="", repr=False)
    forgotten: str = ""
    tenant: str = DEFAULT_TENANT

    @classmethod
    def parse(cls, raw: Mapping[str, Any] | None, tenant: str = DEFAULT_TENANT) -> StorageBlock:
        """From a request, or from what ``public`` gave; other fields are passed over. Raises InvalidRequest."""
        given: dict[str, str] = {}
        for name in _NAMES:
            value = (raw or {}).get(name)
            if value is None:
                continue
            if not isinstance(value, str) or len(value) > _MAX_FIELD:
                raise InvalidRequest(f"storage.{name} must be a string of at most {_MAX_FIELD} characters")
            given[name] = value.strip()
        return cls(**given, tenant=tenant)

    def public(self) -> dict[str, str]:
        """The fields that are set, without credentials. May be stored and logged."""
        shown = {name: getattr(self, name) for name in _NAMES if name not in _SECRET and getattr(self, name)}
        return {**shown, "forgotten": "credentials"} if any(getattr(self, name) for name in _SECRET) else shown

    def without_credentials(self) -> StorageBlock:
        """What a restart would know of it."""
        return StorageBlock.parse(self.public(), self.tenant)

    @property
    def ambient(self) -> bool:
        """Whether the runner's own credentials are meant: S3, and neither key given."""
        return self.provider == S3 and not (self.s3_access_key or self.s3_secret_key or self.forgotten)


_NAMES: Final = tuple(field.name for field in fields(StorageBlock) if field.name != "tenant")
