"""All keys of this deployment in memory, looked up by their hash and kept equal to the file while it runs.

The file is looked at when a key is asked for, at most once a second, so that a key that was removed stops working
within two seconds and nothing needs a restart or a signal. A file that has become unusable, or is gone, changes
nothing but a line in the log: keys that work go on working until there is a good file again.
"""

from __future__ import annotations

import hmac
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from runner.api import key_file, keys
from runner.api.config import TENANT, ApiConfig
from runner.api.keys import Key
from runner.api.quotas import Quota
from runner.api.scopes import SCOPES
from runner.errors import ConfigurationError, Unauthorized
from runner.telemetry.logs import logger

CHECK_S: Final = 1.0
SHORT_KEY: Final = 20
_SETTLED_NS: Final = 100_000_000  # two changes within a tick of the file system's clock look like one
_NOBODY: Final = "0" * 64
_METRICS: Final = frozenset(("metrics",))
log = logger("keys")


class Holder:
    """A key and what it has used."""

    def __init__(self, key: Key, quota: Quota) -> None:
        self.key, self.quota = key, quota


EVERYBODY: Final = Key("none", TENANT, _NOBODY, frozenset(SCOPES))


class Keyring:
    """``SANDBOX_API_KEY`` and the keys of ``SANDBOX_API_KEYS_FILE``. Raises ConfigurationError where that cannot
    be used, or leaves nobody who could call.
    """

    def __init__(
        self,
        config: ApiConfig,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path, self._clock, self._now = config.keys_file, clock, now
        self._fixed: list[Key] = []
        self._holders: dict[str, Holder] = {}
        self._limits: dict[str, int] = {}
        self._seen: tuple[int, ...] | None = None
        self._complaint = ""
        self._confined = False
        self._tenant: str | None = None  # the only one, where the service is confined to one
        self._checked = clock()
        self.anonymous = Holder(EVERYBODY, Quota(EVERYBODY.limits, clock)) if config.anonymous else None
        if config.key is not None:
            self._fixed = [Key("SANDBOX_API_KEY", TENANT, keys.hashed(config.key.encode()), frozenset(SCOPES))]
            if len(config.key) < SHORT_KEY and not config.loopback:
                log.warning("SANDBOX_API_KEY is short; take `openssl rand -hex 16`", characters=len(config.key))
        self._take(self._read(config.keys_file) if config.keys_file else ())
        if config.keys_file and not self._holders:
            raise ConfigurationError(
                f"the file of keys {config.keys_file} ({key_file.SETTING}) holds none: make one: `foliobox keys new`"
            )

    def find(self, secret: bytes) -> Holder:
        """Whose key this is. Raises Unauthorized for one that is unknown, was removed or has expired."""
        self._refresh()
        digest = keys.hashed(secret)
        holder = self._holders.get(digest)
        if not hmac.compare_digest(digest, _NOBODY if holder is None else holder.key.sha256) or holder is None:
            if keys.mistyped(secret):
                raise Unauthorized("the key is mistyped or cut off: its checksum is wrong")
            raise Unauthorized("the key is not known: it may have been revoked, or belong to another deployment")
        if holder.key.expired(self._now()):
            raise Unauthorized("the key has expired: ask the operator for a new one")
        return holder

    def tenant_limit(self, tenant: str) -> int | None:
        """How many live sandboxes a tenant may have: the lowest that any of its keys names; None: no limit of
        its own.
        """
        self._refresh()
        return self._limits.get(tenant)

    def confine(self) -> None:
        """From now on serve one tenant: a file with keys of another is refused, now and whenever it is read again.

        Keys for metrics only reach no sandbox, so that they do not count. Raises ConfigurationError.
        """
        self._confined = True
        self._check_tenants([holder.key for holder in self._holders.values()])

    def _check_tenants(self, found: Sequence[Key]) -> None:
        if not self._confined:
            return
        tenants = {key.tenant for key in found if key.scopes != _METRICS}
        if self._tenant is not None:
            tenants.add(self._tenant)
        if len(tenants) > 1:
            raise ConfigurationError(
                f"keys of {len(tenants)} tenants ({key_file.SETTING}, SANDBOX_API_KEY is one of `{TENANT}`): where a "
                "wall is missing only one is served; keep keys of one, or see `foliobox doctor` for what is missing"
            )
        self._tenant = next(iter(tenants), None)

    def __len__(self) -> int:
        return len(self._holders)

    def _refresh(self) -> None:
        now = self._clock()
        if self._path is None or now - self._checked < CHECK_S:
            return
        self._checked = now
        try:
            state = os.stat(self._path)
            if self._seen == _signature(state):
                return
            self._note(state)
            self._take(self._read(self._path))
        except (ConfigurationError, OSError) as error:
            complaint = error.detail if isinstance(error, ConfigurationError) else str(error.strerror)
            if complaint != self._complaint:
                log.error("the file of keys cannot be used; the keys known so far stay", detail=complaint)
            self._complaint = complaint
        else:
            self._complaint = ""

    def _note(self, state: os.stat_result) -> None:
        """Remember what was seen before it is read, so that a change meanwhile is seen as one."""
        settled = self._now() * 1e9 - max(state.st_mtime_ns, state.st_ctime_ns) > _SETTLED_NS
        self._seen = _signature(state) if settled else None

    def _read(self, path: Path) -> Sequence[Key]:
        found, state = key_file.read(path)
        if state.st_mode & (stat.S_IRGRP | stat.S_IROTH):
            log.warning("others can read the names and tenants of all keys: chmod 600", path=str(path))
        for number, key in enumerate(found):
            if any(key.sha256 == fixed.sha256 for fixed in self._fixed):
                raise ConfigurationError(f"{key_file.SETTING}: keys[{number}].sha256 is that of SANDBOX_API_KEY too")
        self._check_tenants([*self._fixed, *found])
        return found

    def _take(self, found: Sequence[Key]) -> None:
        """Keys whose limits stay as they are keep what they have used."""
        before, holders = self._holders, dict[str, Holder]()
        limits: dict[str, int] = {}
        for key in (*self._fixed, *found):
            old = before.get(key.sha256)
            kept = old is not None and old.quota.limits == key.limits
            holders[key.sha256] = Holder(key, old.quota if old is not None and kept else Quota(key.limits, self._clock))
            if key.limits.sandboxes is not None:
                limits[key.tenant] = min(key.limits.sandboxes, limits.get(key.tenant, key.limits.sandboxes))
        if before and {s: h.key for s, h in before.items()} != {s: h.key for s, h in holders.items()}:
            log.info("keys read again", keys=len(holders))
        self._holders, self._limits = holders, limits


def _signature(state: os.stat_result) -> tuple[int, ...]:
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino, state.st_mode, state.st_uid
