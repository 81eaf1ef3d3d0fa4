"""TLS is told from plaintext by its first bytes."""

from __future__ import annotations

import ssl

import pytest
from stele.wire.messages import MetadataRequest

from app.network.first_bytes import begins_tls, is_tls_hello


def hello_of_openssl() -> bytes:
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_a_hello_of_openssl_is_tls() -> None:
    hello = hello_of_openssl()
    assert begins_tls(hello)
    assert is_tls_hello(hello)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        MetadataRequest(topics=()).encode(),
        # ApiVersions of Kafka: length, key 18, version 3
        b"\x00\x00\x00\x20\x00\x12\x00\x03",
        b"\x15\x03\x01",
        b"\x16\x02\x01",
        b"\x16\x03\x05",
        b"\x16\x03",
        b"",
    ],
)
def test_other_bytes_are_not(data: bytes) -> None:
    assert not is_tls_hello(data)
