"""Checks Signature Version 4 with ``botocore``: another implementation than the one that signed."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, quote, urlsplit

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

ROLE_TOKEN = "token-of-a-role"
_STAMP = "%Y%m%dT%H%M%SZ"


def problem(method: str, url: str, headers: dict[str, str], body: bytes, keys: dict[str, str]) -> str | None:
    """The S3 code of what is wrong with a request's signature, or None. ``keys``: secret by access key."""
    query = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    if "X-Amz-Signature" in query:
        return _of_query(method, url, headers, query, keys)
    return _of_header(method, url, headers, body, keys)


def _of_header(method: str, url: str, headers: dict[str, str], body: bytes, keys: dict[str, str]) -> str | None:
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return "AccessDenied"
    fields = dict(part.strip().split("=", 1) for part in rest.split(","))
    if headers.get("x-amz-security-token", ROLE_TOKEN) != ROLE_TOKEN:
        return "InvalidToken"
    digest = headers["x-amz-content-sha256"]
    if digest not in ("UNSIGNED-PAYLOAD", hashlib.sha256(body).hexdigest()):
        return "XAmzContentSHA256Mismatch"
    signed = {name: headers[name] for name in fields["SignedHeaders"].split(";")}
    stamp = headers["x-amz-date"]
    return _compare(method, url, signed, fields["Credential"], stamp, fields["Signature"], keys, query=False)


def _of_query(
    method: str, url: str, headers: dict[str, str], query: dict[str, str], keys: dict[str, str]
) -> str | None:
    begun = datetime.strptime(query["X-Amz-Date"], _STAMP).replace(tzinfo=UTC)
    if datetime.now(UTC) > begun + timedelta(seconds=int(query["X-Amz-Expires"])):
        return "AccessDenied"
    parts = urlsplit(url)
    left = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in query.items()
        if name != "X-Amz-Signature"
    )
    signed = {name: headers[name] for name in query["X-Amz-SignedHeaders"].split(";")}
    return _compare(
        method,
        parts._replace(query=left).geturl(),
        signed,
        query["X-Amz-Credential"],
        query["X-Amz-Date"],
        query["X-Amz-Signature"],
        keys,
        query=True,
    )


def _compare(
    method: str, url: str, signed: dict[str, str], scope: str, stamp: str, given: str, keys: dict[str, str], query: bool
) -> str | None:
    access_key, day, region, service, _ = scope.split("/")
    if access_key not in keys:
        return "InvalidAccessKeyId"
    if abs(datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC) - datetime.now(UTC)) > timedelta(days=8):
        return "RequestTimeTooSkewed"
    kind = S3SigV4QueryAuth if query else S3SigV4Auth
    auth = kind(Credentials(access_key, keys[access_key]), service, region)
    request = AWSRequest(method=method, url=url, headers=signed)
    request.context["timestamp"] = stamp
    wanted = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert day == stamp[:8]
    return None if hmac.compare_digest(wanted, given) else "SignatureDoesNotMatch"
