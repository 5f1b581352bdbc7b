"""The S3 server of the tests: moto's, behind a check of every signature and a record of every request."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.support.objects.signatures import problem

ACCESS_KEY, SECRET_KEY, BUCKET, REGION = (
    "AKFOLIOBOX",
    "a-secret-of-the-tests-0123456789",
    "bucket-of-tests",
    "us-east-1",
)


@dataclass
class S3Server:
    """A server that is up. ``requests``: method and address of each, ``refused``: codes of what was turned away."""

    port: int
    requests: list[tuple[str, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    knows_conditions: bool = True
    loses_answers: int = 0  # to so many of the next writes

    @property
    def url(self) -> str:
        """Its endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def host(self) -> str:
        """As it stands in SANDBOX_STORAGE_HOSTS."""
        return f"127.0.0.1:{self.port}"

    def block(self, **changed: str) -> dict[str, str]:
        """A ``storage`` object that works here."""
        return {
            "provider": "s3",
            "s3_bucket": BUCKET,
            "s3_region": REGION,
            "s3_endpoint": self.url,
            "s3_access_key": ACCESS_KEY,
            "s3_secret_key": SECRET_KEY,
            **changed,
        }

    def client(self) -> Any:
        """A client of another implementation."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=Config(
                proxies={},
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )

    def keys(self) -> list[str]:
        """All that is in the bucket."""
        return [each["Key"] for each in self.client().list_objects_v2(Bucket=BUCKET).get("Contents", [])]


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: Any) -> None:
        """Nothing."""


class _Checked:
    """Passes on what is signed well. A bucket in the host's name is put into the path, as moto wants it."""

    def __init__(self, inner: Any, record: S3Server) -> None:
        self._inner, self._record = inner, record

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name[:5] == "HTTP_"}
        headers |= {
            "content-type": environ.get("CONTENT_TYPE", ""),
            "content-length": environ.get("CONTENT_LENGTH", ""),
        }
        raw: str = environ["RAW_URI"]
        url = raw if raw.startswith("http://") else f"http://{headers['host']}{raw}"  # whole where we are the proxy
        self._record.requests.append((environ["REQUEST_METHOD"], url))
        code = problem(environ["REQUEST_METHOD"], url, headers, body, {ACCESS_KEY: SECRET_KEY})
        conditional = "HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ
        if code is None and conditional and not self._record.knows_conditions:
            code = "NotImplemented"
        if code is not None:
            self._record.refused.append(code)
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{SECRET_KEY}</Message></Error>".encode()
            status = "501 Not Implemented" if code == "NotImplemented" else "403 Forbidden"
            start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))])
            return [text]
        path = urlsplit(url)._replace(scheme="", netloc="").geturl()
        if headers["host"].startswith(f"{BUCKET}."):
            path, environ["PATH_INFO"] = f"/{BUCKET}{path}", f"/{BUCKET}{environ['PATH_INFO']}"
        environ["RAW_URI"] = environ["REQUEST_URI"] = path
        environ["HTTP_HOST"] = self._record.host
        answer: Iterable[bytes] = self._inner(environ, start)
        if environ["REQUEST_METHOD"] == "PUT" and self._record.loses_answers:
            self._record.loses_answers -= 1
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with one empty bucket, for as long as the block lasts."""
    record = S3Server(0)
    app = _Checked(create_backend_app("s3"), record)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    record.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        client = record.client()
        client.create_bucket(Bucket=BUCKET)
        record.requests.clear()
        yield record
        while batch := client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
            for each in batch:
                client.delete_object(Bucket=BUCKET, Key=each["Key"])
        client.delete_bucket(Bucket=BUCKET)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
