"""Over TLS: the tunnel leads to the host that is listed, and the store's certificate is looked at by the client."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from runner.errors import StorageFailed
from runner.objects.block import StorageBlock
from tests.integration.objects.conftest import Making
from tests.support.objects.misbehaving import listener


def certificate(folder: Path) -> tuple[Path, Path]:
    """One for 127.0.0.1, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store of the tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("store.test")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "cert.pem", folder / "key.pem"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return chain, private


async def test_a_store_over_tls(making: Making, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that nobody trusts ends it before a byte of the request; trusted, the request comes."""
    import socket

    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *a, **k: real("127.0.0.1" if host == "store.test" else host, *a, **k)
    )
    chain, private = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, private)
    async with listener(tls=context) as server:
        raw = {"provider": "s3", "s3_bucket": "bucket", "s3_access_key": "A", "s3_secret_key": "S"}
        block = StorageBlock.parse({**raw, "s3_endpoint": f"https://store.test:{server.port}"})
        listed = f"store.test:{server.port}"
        with pytest.raises(StorageFailed, match=r"^storage delete failed: "):
            await making(SANDBOX_STORAGE_HOSTS=listed).delete(block, "x")
        assert server.heads == []
        monkeypatch.setenv("SSL_CERT_FILE", str(chain))
        await making(SANDBOX_STORAGE_HOSTS=listed).delete(block, "x")
        assert [head.split("\r\n")[0] for head in server.heads] == ["DELETE /bucket/workspaces/x HTTP/1.1"]
