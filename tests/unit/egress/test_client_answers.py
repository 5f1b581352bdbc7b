"""What a server may answer: too much, too slowly, packed, broken, or with the wrong certificate."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
import threading
import time
import zlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpcore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from runner.egress.addresses import IPAddress, refusal
from runner.egress.client import Client
from runner.errors import FetchFailed, FetchTimeout, TooLarge
from tests.support.web import SITE, Answer, LabNetwork, Web, redirect, reply
from tests.unit.egress.lab import NAMES, QUICK, Kept, Lab


async def test_the_limit_is_exact_with_and_without_a_length(lab: Lab) -> None:
    for length in (True, False):
        lab.web.pages["/fits"] = reply(b"x" * 1000, length=length)
        lab.web.pages["/over"] = reply(b"x" * 1001, length=length)
        assert len((await lab.fetch(f"http://{SITE}/fits", 1000))[0]) == 1000
        with pytest.raises(TooLarge):
            await lab.fetch(f"http://{SITE}/over", 1000)


async def test_a_length_that_lies_is_refused_before_anything_comes(lab: Lab) -> None:
    lab.web.pages["/a"] = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nx"
    with pytest.raises((TooLarge, FetchFailed)):
        await lab.fetch(f"http://{SITE}/a")


async def test_an_endless_body_is_cut_off(lab: Lab) -> None:
    sent = 0

    def endless(sock: socket.socket, _: str) -> None:
        nonlocal sent
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            while sent < 200 << 20:
                sock.sendall(b"x" * 65536)
                sent += 65536

    lab.web.pages["/endless"] = endless
    with pytest.raises(TooLarge):
        await lab.fetch(f"http://{SITE}/endless", 1 << 20)
    assert sent < 64 << 20


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "x-gzip"])
async def test_what_is_compressed_unasked_is_undone(lab: Lab, encoding: str) -> None:
    plain = bytes(range(256)) * 2000
    packed = zlib.compress(plain) if encoding == "deflate" else gzip.compress(plain)
    lab.web.pages["/packed"] = reply(packed, headers={"Content-Encoding": encoding.upper()})
    assert (await lab.fetch(f"http://{SITE}/packed"))[0] == plain


@pytest.mark.parametrize("after", [b"", b"\0" * 700])
@pytest.mark.parametrize("pieces", [1, 3, 1000])
async def test_a_file_of_several_members_is_whole(lab: Lab, after: bytes, pieces: int) -> None:
    """However they come over the line, and with padding after the last or without."""
    parts = [b"one" * 50_000, b"", b"two", bytes(range(256)) * 1000]
    packed = b"".join(gzip.compress(part) for part in parts) + after

    def page(sock: socket.socket, _: str) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
        step = -(-len(packed) // pieces)
        for at in range(0, len(packed), step):
            piece = packed[at : at + step]
            sock.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        sock.sendall(b"0\r\n\r\n")

    lab.web.pages["/members"] = page
    assert (await lab.fetch(f"http://{SITE}/members"))[0] == b"".join(parts)


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(b"x") + b"rest", gzip.compress(b"x") + b"\0rest", gzip.compress(b"x") + gzip.compress(b"y")[:-3],
        gzip.compress(b"x") + b"\0" + gzip.compress(b"y"), gzip.compress(b"x") + gzip.compress(b"") * 5000,
    ],
    ids=["other bytes", "other bytes after padding", "half a member", "a member after padding", "without end"],
)  # fmt: skip
async def test_what_else_follows_a_member_is_not_left_out_in_silence(lab: Lab, body: bytes) -> None:
    lab.web.pages["/packed"] = reply(body, headers={"Content-Encoding": "gzip"})
    with pytest.raises(FetchFailed):
        await lab.fetch(f"http://{SITE}/packed")


async def test_members_count_against_the_limit_together(lab: Lab) -> None:
    lab.web.pages["/members"] = reply(gzip.compress(b"x" * 600) * 2, headers={"Content-Encoding": "gzip"})
    with pytest.raises(TooLarge):
        await lab.fetch(f"http://{SITE}/members", 1000)


async def test_a_bomb_costs_its_limit_and_no_more(lab: Lab) -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(96)) + packer.flush()  # a thousandth of that
    lab.web.pages["/bomb"] = reply(packed, headers={"Content-Encoding": "gzip"})
    kept = Kept()
    began = time.process_time()
    with pytest.raises(TooLarge):
        await Client(QUICK, lab.network).fetch(f"http://{SITE}/bomb", kept, 1 << 20)
    assert len(kept.content) <= 1 << 20
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", b"not packed"), ("gzip", gzip.compress(b"x" * 999)[:-9]), ("br", b"x"), ("gzip, gzip", b"x"),
        ("zstd", b"x"), ("compress", b"x"), ("deflate", gzip.compress(b"x")), ("gzip", b""),
        ("deflate", zlib.compress(b"x") + b"rest"),
    ],
)  # fmt: skip
async def test_damaged_and_unknown_encodings_fail(lab: Lab, encoding: str, body: bytes) -> None:
    lab.web.pages["/packed"] = reply(body, headers={"Content-Encoding": encoding})
    with pytest.raises(FetchFailed):
        await lab.fetch(f"http://{SITE}/packed")


# -- time ---------------------------------------------------------------------------------------------------------


def dripping(before: bytes, drop: bytes) -> Answer:
    """Something at once, then a drop at a time: never silent for long, and never done."""

    def page(sock: socket.socket, _: str) -> None:
        sock.sendall(before)
        with contextlib.suppress(OSError):
            for _turn in range(400):
                sock.sendall(drop)
                time.sleep(0.05)

    return page


@pytest.mark.parametrize(
    "page",
    [
        dripping(b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
        dripping(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        dripping(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        dripping(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        dripping(b"", b""),
        dripping(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    ],
    ids=["body", "header", "headers", "interim answers", "silence", "chunks"],
)
async def test_a_slow_server_is_left_in_time(lab: Lab, page: Answer) -> None:
    lab.web.pages["/slow"] = page
    config = replace(QUICK, silence_s=0.5, total_s=0.8)
    began = time.monotonic()
    with pytest.raises(FetchTimeout):
        await lab.fetch(f"http://{SITE}/slow", config=config)
    assert time.monotonic() - began < 3.0


async def test_slow_redirects_share_one_deadline(lab: Lab) -> None:
    def slow(sock: socket.socket, _: str) -> None:
        time.sleep(0.6)
        sock.sendall(redirect("/slow"))

    lab.web.pages["/slow"] = slow
    began = time.monotonic()
    with pytest.raises(FetchTimeout):
        await lab.fetch(f"http://{SITE}/slow", config=replace(QUICK, total_s=1.0))
    assert time.monotonic() - began < 2.0


# -- answers that are none ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"\0\0\0", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 30_000 + b"\r\nbody",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\nbody", b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", b"<html>no http</html>", reply(b""),
        reply(b"x", "204 No Content"), reply(b"x", "206 Partial Content"), reply(b"x", "304 Not Modified"),
        reply(b"x", "401 Unauthorized"), reply(b"x", "404 Not Found"), reply(b"x", "500 Oops"),
        reply(b"x", "302 Found"),
        reply(b"x", "300 Multiple Choices", {"Location": "/a"}),
        b"HTTP/1.1 302 Found\r\nLocation: /a\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /\xff\xfe\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=range(22),
)  # fmt: skip
async def test_an_answer_that_is_none_is_one_error(lab: Lab, answer: bytes) -> None:
    lab.web.pages["/odd"] = answer
    with pytest.raises(FetchFailed):
        await lab.fetch(f"http://{SITE}/odd")


@pytest.mark.parametrize("host", ["unknown.example", "nothing.example"])
async def test_names_without_an_address(lab: Lab, host: str) -> None:
    with pytest.raises(FetchFailed, match="no address"):
        await lab.fetch(f"http://{host}/a")


async def test_a_resolver_that_hangs_is_left(lab: Lab) -> None:
    class Hanging(LabNetwork):
        async def resolve(self, host: str) -> list[object]:  # type: ignore[override]
            await asyncio.Event().wait()
            return []

    lab.network = Hanging(lab.web.port, lab.canary.port, NAMES)
    with pytest.raises(FetchTimeout, match="resolved in time"):
        await lab.fetch(f"http://{SITE}/a", config=replace(QUICK, connect_s=0.3))


async def test_names_that_are_never_answered_are_their_callers_own_trouble(lab: Lab) -> None:
    """Two hang, and the third of that caller is not even asked for; another caller's is answered at once."""
    hanging, asked = asyncio.Event(), list[str]()

    class Hanging(LabNetwork):
        async def resolve(self, host: str) -> list[IPAddress]:
            asked.append(host)
            if host.startswith("never"):
                await hanging.wait()
            return await super().resolve(SITE)

    lab.network = Hanging(lab.web.port, lab.canary.port, NAMES)
    client = Client(replace(QUICK, connect_s=0.2), lab.network)
    for number in range(4):
        with pytest.raises(FetchTimeout):
            await client.fetch(f"http://never{number}.example/a", Kept(), 100, "one")
    assert asked == ["never0.example", "never1.example"]
    assert (await client.fetch(f"http://{SITE}/a", Kept(), 100, "another")).size == 7
    hanging.set()
    assert (await client.fetch(f"http://{SITE}/a", Kept(), 100, "one")).size == 7


async def test_what_the_sink_raises_comes_out_as_it_is(lab: Lab) -> None:
    class Full:
        async def write(self, chunk: bytes) -> None:
            raise TooLarge("no room")

    with pytest.raises(TooLarge, match="no room"):
        await Client(QUICK, lab.network).fetch(f"http://{SITE}/a", Full(), 1 << 20)


# -- TLS ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of the site, which signs itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SITE)])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(SITE)]), critical=False)
    signed = made.sign(key, hashes.SHA256())
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both = tmp_path_factory.mktemp("tls") / "both.pem"
    both.write_bytes(key.private_bytes(*plain) + signed.public_bytes(Encoding.PEM))
    return both


async def test_https_holds_the_certificate_against_the_name(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with Web(context).running() as web, Web().running() as canary:
        web.pages["/a"] = reply(b"content")
        lab = Lab(web, canary)
        assert (await lab.fetch(f"https://{SITE}/a", tls=trusting))[0] == b"content"
        with pytest.raises(FetchFailed):
            await lab.fetch("https://both.example/a", tls=trusting)
        with pytest.raises(FetchFailed):
            await lab.fetch(f"https://{SITE}/a")  # nobody has signed it


def test_the_judge_is_the_guard_unless_told_otherwise() -> None:
    assert Client(QUICK)._judge is refusal


@pytest.mark.parametrize("kind", [
    kind for kind in vars(httpcore).values() if isinstance(kind, type) and issubclass(kind, Exception)
])  # fmt: skip
async def test_the_door_to_the_library_is_total(lab: Lab, kind: type[Exception]) -> None:
    """Whatever exception of it there is, and those of the system, come out as ours."""

    class Failing(LabNetwork):
        async def connect(self, address: object, port: int, timeout_s: float) -> object:  # type: ignore[override]
            raise kind("text of the library")

    lab.network = Failing(lab.web.port, lab.canary.port, NAMES)
    with pytest.raises(FetchFailed) as failed:
        await lab.fetch(f"http://{SITE}/a")
    assert "text of the library" not in failed.value.detail


async def test_one_caller_leaves_turns_for_others(lab: Lab) -> None:
    """As many slow fetches of one as there are turns in all, and another's is not kept waiting."""
    release = threading.Event()

    def waits(sock: socket.socket, _: str) -> None:
        release.wait(5)
        sock.sendall(reply(b"late"))

    lab.web.pages["/slow"] = waits
    client = Client(replace(QUICK, at_once=3, at_once_each=2), lab.network)
    slow = [asyncio.create_task(client.fetch(f"http://{SITE}/slow", Kept(), 100, "one")) for _ in range(6)]
    try:
        async with asyncio.timeout(2):
            while len(lab.web.requests) < 2:
                await asyncio.sleep(0.01)
            assert (await client.fetch(f"http://{SITE}/a", Kept(), 100, "another")).size == 7
        assert sum("/slow" in request for request in lab.web.requests) == 2
    finally:
        release.set()
    assert [found.size for found in await asyncio.gather(*slow)] == [4] * 6
