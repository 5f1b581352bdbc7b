"""A bucket of S3, or of OSS through its S3 protocol, spoken to through ``obstore``."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any, Final, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import obstore
from obstore.store import S3Store

from runner.objects.bucket import SHA256, Absent, Condition, Fault, Found, Opened, Same, check
from runner.objects.door import door
from runner.objects.endpoint import Endpoint
from runner.objects.relay import Relay, Route

_PIECE: Final = 256 << 10
_BY_NAME: Final = "with the credentials of a role its host must be listed itself"
_ERRORS_IN_A_ROW_S: Final = timedelta(minutes=5)


class RemoteBucket:
    """``credentials`` None: the runner's own. ``conditional``: whether a put may name a condition at all."""

    def __init__(
        self,
        endpoint: Endpoint,
        route: Route,
        relay: Relay,
        credentials: tuple[str, str] | None,
        *,
        attempts: int,
        read_timeout_s: float,
        conditional: bool,
    ) -> None:
        self._endpoint, self._route, self._relay, self._conditional = endpoint, route, relay, conditional
        self._credentials, self._attempts, self._read_timeout_s = credentials, attempts, read_timeout_s
        self._made: S3Store | None = None

    async def _store(self) -> S3Store:
        """The library's client. Behind the relay, unless the operator has a proxy, which is a guard of its own."""
        self._route.problem = ""
        if self._made is not None:
            return self._made
        endpoint, connect_s = self._endpoint, self._route.connect_timeout_s
        config: dict[str, Any] = {
            "endpoint": endpoint.url,
            "aws_endpoint_url_s3": endpoint.url,  # else one in the environment would win
            "region": endpoint.region,
            "virtual_hosted_style_request": endpoint.in_host,
            "disable_bulk_delete": True,  # its body needs a header that stores like OSS want and S3 does not
        }
        client: dict[str, Any] = {
            "allow_http": endpoint.scheme == "http",
            "connect_timeout": timedelta(seconds=connect_s),
            "timeout": timedelta(seconds=connect_s + self._read_timeout_s),
            "read_timeout": timedelta(seconds=self._read_timeout_s),
        }
        if self._credentials is None and "AWS_ACCESS_KEY_ID" not in os.environ:
            # Those of a role, which the library fetches the same way: it must be let out, so to a host of trust only.
            if not self._route.named:
                raise Fault(_BY_NAME, "role")
        elif not _has_proxy(endpoint):
            client["proxy_url"] = await self._relay.address(self._route)
        retry: dict[str, Any] = {"max_retries": self._attempts - 1, "retry_timeout": _ERRORS_IN_A_ROW_S}
        with self._door():
            self._made = S3Store(
                endpoint.bucket,
                config=cast(Any, config),
                client_options=cast(Any, client),
                retry_config=cast(Any, retry),
                # Not as settings: beside those a session token of the environment would be sent along.
                credential_provider=None if self._credentials is None else _given(*self._credentials),
            )
        return self._made

    @contextmanager
    def _door(self, *, conditional: bool = False) -> Iterator[None]:
        """The door; what ended at the relay is told as that."""
        try:
            with door(conditional=conditional):
                yield
        except Fault as fault:
            if self._route.problem:
                raise Fault(self._route.problem, fault.code) from None
            raise

    def forget(self) -> None:
        """It is not used any more."""
        self._relay.forget(self._route)

    async def put(self, key: str, data: memoryview, content_type: str, sha256: str = "", only: Condition = None) -> str:
        """One request, so that there is never a part of an object."""
        mode: Any = "overwrite"
        if only is not None and self._conditional:
            mode = "create" if isinstance(only, Absent) else {"e_tag": only.etag}
        elif only is not None:
            await self._check(key, only)
        attributes: Any = {"Content-Type": content_type, **({SHA256: sha256} if sha256 else {})}
        store = await self._store()
        with self._door(conditional=mode != "overwrite"):
            put = await obstore.put_async(store, key, data, attributes=attributes, mode=mode, use_multipart=False)
        return put["e_tag"] or ""

    async def _check(self, key: str, only: Absent | Same) -> None:
        """The condition, looked at just before the put: as near as a store without conditions lets us."""
        check(await self.head(key), only)

    def without_conditions(self) -> None:
        """From now on look before each put instead: the store has said that it knows no conditions."""
        self._conditional = False

    async def head(self, key: str) -> Found | None:
        """Through a read of no bytes: a plain head does not give the metadata."""
        store = await self._store()
        try:
            with self._door():
                got = await obstore.get_async(store, key, options={"head": True})
                return _found(got.meta, got.attributes)
        except Fault as fault:
            if fault.code in ("FileNotFoundError", "404", "NoSuchKey"):
                return None
            raise

    @asynccontextmanager
    async def open(self, key: str) -> AsyncIterator[Opened]:
        """The object as one stream."""
        store = await self._store()
        with self._door():
            got = await obstore.get_async(store, key)
            found, stream = _found(got.meta, got.attributes), got.stream(_PIECE)
        yield Opened(found, self._pieces(stream))

    async def delete(self, key: str) -> None:
        """Remove it."""
        store = await self._store()
        try:
            with self._door():
                await obstore.delete_async(store, key)
        except Fault as fault:
            if fault.code not in ("FileNotFoundError", "404", "NoSuchKey"):
                raise

    async def copy(self, source: str, target: str) -> None:
        """Within the bucket, done by the store."""
        store = await self._store()
        with self._door():
            await obstore.copy_async(store, source, target, overwrite=True)

    async def list(self, prefix: str) -> AsyncIterator[list[Found]]:
        """Pages as the store gives them."""
        store = await self._store()
        with self._door():
            pages = obstore.list(store, prefix.rstrip("/"))
        while True:
            try:
                with self._door():
                    page = await anext(pages)
            except StopAsyncIteration:
                return
            yield [_found(meta, {}) for meta in page]

    async def presign(self, key: str, seconds: int) -> str:
        """A signed GET, Signature Version 4 in the query."""
        store = await self._store()
        with self._door():
            return await obstore.sign_async(store, "GET", key, timedelta(seconds=seconds))

    async def _pieces(self, stream: Any) -> AsyncIterator[bytes]:
        while True:
            try:
                with self._door():
                    piece = bytes(await anext(stream))
            except StopAsyncIteration:
                return
            for at in range(0, len(piece), _PIECE):
                yield piece[at : at + _PIECE]


def _has_proxy(endpoint: Endpoint) -> bool:
    """Whether the runner's environment has a proxy for that host."""
    return not getproxies().keys().isdisjoint((endpoint.scheme, "all")) and not proxy_bypass(
        urlsplit(endpoint.url).netloc
    )


def _given(access_key: str, secret_key: str) -> Any:
    def credentials() -> dict[str, Any]:
        return {"access_key_id": access_key, "secret_access_key": secret_key, "token": None, "expires_at": None}

    return credentials


def _found(meta: Any, attributes: Any) -> Found:
    modified = meta["last_modified"]
    return Found(
        key=meta["path"],
        size=meta["size"],
        etag=meta["e_tag"] or "",
        modified=modified.timestamp() if modified is not None and modified.timestamp() > 0 else None,
        metadata={str(name): str(value) for name, value in attributes.items()},
    )
