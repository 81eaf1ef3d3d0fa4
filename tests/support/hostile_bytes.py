"""Random bytes for the listeners: what a client sends before it has logged in, changed and cut at random."""

from __future__ import annotations

import base64
import random
import ssl
import struct
from collections.abc import Callable, Sequence

from stele.wire import messages as m
from stele.wire.kafka.api_versions import ApiVersionsRequest
from stele.wire.kafka.security import SaslAuthenticateRequest, SaslHandshakeRequest

from app.tcp.kafka.apis import SERVED
from tests.support.kafka_peer import framed, request_body, request_frame
from tests.support.random_messages import random_message

# Returns the bytes of one connection.
Source = Callable[[random.Random], bytes]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "plain", "GSSAPI", "", "X" * 300)
# None of them logs in. Few are whole messages of PLAIN, because each of those costs the hash of a password.
TOKENS = (
    b"",
    b"\0",
    b"\0alice",
    b"\0alice\0",
    b"bob\0alice\0wrong-password",
    b"n,,n=alice,r=client-nonce",
    b"n,a=bob,n=alice,r=client-nonce",
    b"p=tls-unique,,n=alice,r=client-nonce",
    b"n,,n=,r=",
    b"c=biws,r=client-nonce,p=AAAA",
    b"c=biws,r=,p=" + b"A" * 44,
    b"n,,\1auth=Bearer x.y.z\1\1",
    b"n,,\1auth=Bearer stele_0000_1111\1\1",
    b"n,,\1\1",
    b"\1",
    b"\xff" * 40,
    b"n,,n=" + b"a" * 5000 + b",r=x",
)
_RARE_TOKEN = b"\0alice\0wrong-password"
_RARELY = 0.002


def changed(rng: random.Random, data: bytes) -> bytes:
    """Return ``data`` with some bytes set, inserted and removed."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randint(0, len(out))
        match rng.randrange(4):
            case 0 if place < len(out):
                out[place] = rng.randrange(256)
            case 1:
                del out[place : place + rng.randint(1, 9)]
            case 2 if place + 4 <= len(out):
                out[place : place + 4] = struct.pack(
                    ">I", rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 65536, 65537))
                )
            case _:
                out[place:place] = rng.randbytes(rng.randint(1, 9))
    return bytes(out)


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """Cut ``data`` as a network might."""
    if rng.random() < 0.6 or len(data) < 2:
        return [data] if data else []
    cuts = sorted(rng.randint(1, len(data) - 1) for _ in range(rng.randint(1, 4)))
    parts = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    return [part for part in parts if part]


def _token(rng: random.Random) -> bytes:
    if rng.random() < _RARELY:
        return _RARE_TOKEN
    token = rng.choice(TOKENS)
    return token if rng.random() < 0.5 else changed(rng, token)


def _mixed(rng: random.Random, frames: Sequence[bytes], one: Source, head: struct.Struct) -> bytes:
    """Return frames, changed frames, frames of random bytes, or random bytes alone."""
    match rng.randrange(8):
        case 0:
            return rng.randbytes(rng.randint(1, 200))
        case 1:
            body = rng.randbytes(rng.randint(0, 100))
            return head.pack(len(body)) + body
        case 2:
            # Announces more than may come before a login, or more than there is.
            size = rng.choice((64 * 1024, 64 * 1024 + 1, 16 * 1024 * 1024, 2**31 - 1, 0, 3, 4, 7, 8))
            return head.pack(size) + rng.randbytes(rng.choice((0, 10, 10, 10, 10, 10, 70_000)))
        case 3:
            return changed(rng, rng.choice(frames))
        case 4:
            return rng.choice(frames) * rng.randint(1, 40)
        case _:
            stream = b"".join(one(rng) for _ in range(rng.randint(1, 4)))
            return stream if rng.random() < 0.4 else changed(rng, stream)


def kafka_source() -> Source:
    rng = random.Random("frames of the Kafka protocol")
    frames: list[bytes] = []
    for key, row in SERVED.items():
        first, last = row.api.versions
        for version in {first, last, rng.randint(first, last)}:
            message = random_message(row.api.request, version, rng)
            tags = b"\0" if row.api.is_flexible(version) else None
            frames.append(framed(key, version, request_body(message, version), tags=tags))
    versions = [
        request_frame(ApiVersionsRequest(client_software_name="librdkafka", client_software_version="2.0"), v)
        for v in range(5)
    ]
    handshakes = [
        request_frame(SaslHandshakeRequest(mechanism=name), v) for name in MECHANISMS for v in (0, 1)
    ]

    def one(rng: random.Random) -> bytes:
        match rng.randrange(6):
            case 0:
                return rng.choice(versions)
            case 1 | 2:
                return rng.choice(handshakes)
            case 3:
                token = _token(rng)
                return struct.pack(">i", len(token)) + token
            case _:
                return request_frame(SaslAuthenticateRequest(auth_bytes=_token(rng)), rng.randrange(3))

    head = struct.Struct(">i")
    return lambda rng: _mixed(rng, frames, one, head)


def binary_source() -> Source:
    frames = [
        m.ProduceRequest(topic="fuzz", data=b"value").encode(),
        m.ConsumeRequest(topic="fuzz", offset=0, batch_size=10).encode(),
        m.FlushRequest().encode(),
        m.MetadataRequest(topics=["fuzz"], auto_create=True).encode(),
        m.ProduceBatchRequest(topic="fuzz", partition=0, acks=1, batches=b"not a batch").encode(),
        m.CreateTopicRequest(topic="fuzz", partitions=1, configs=[("retention.ms", "1")]).encode(),
        m.DeleteTopicRequest(topic="fuzz").encode(),
        *(struct.pack(">IB", 9, kind) + bytes(4) for kind in range(256)),
    ]

    def one(rng: random.Random) -> bytes:
        if rng.random() < 0.1:
            return rng.choice(frames)
        mechanism = rng.choice(MECHANISMS[:4] if rng.random() < 0.8 else MECHANISMS)
        return m.AuthenticateRequest(mechanism=mechanism, data=_token(rng)).encode()

    head = struct.Struct(">I")
    return lambda rng: _mixed(rng, frames, one, head)


def _basic(text: bytes) -> bytes:
    return b"Basic " + base64.b64encode(text)


_METHODS = (b"GET", b"POST", b"PUT", b"DELETE", b"HEAD", b"OPTIONS", b"CONNECT", b"PRI", b"G")
_PATHS = (
    b"/", b"/healthz", b"/healthz/", b"/healthz%2f..%2fv1%2ftopics", b"//healthz", b"/console/static/../../v1/topics",
    b"/console/login", b"/console/login?next=//x", b"/v1/topics", b"/v1/topics/a%2Fb/records", b"/metrics",
    b"/v1/users", b"*", b"http://x/v1/topics", b"/%00", b"/%ff", b"/" + b"a" * 3000, b"",
)  # fmt: skip
_FIELDS = (
    b"Authorization: Bearer x", b"Authorization: " + _basic(b"alice"), b"Authorization: " + _basic(b":x"),
    b"Authorization: Bearer stele_0000_1111", b"Authorization: Negotiate x", b"Authorization:", b"Cookie: a=b; =;;",
    b"Cookie: stele_session=" + b"x" * 43, b"Host: localhost", b"Host: evil.example", b"Content-Length: 5",
    b"Content-Length: 99999999999", b"Content-Length: -1", b"Transfer-Encoding: chunked", b"Expect: 100-continue",
    b"Connection: close", b"Connection: Upgrade\r\nUpgrade: websocket", b"Upgrade: h2c", b"Accept: text/html",
    b"X-Forwarded-For: 127.0.0.1", b"Origin: http://evil.example", b"Sec-Fetch-Site: same-origin", b"X: " + b"y" * 9000,
    b"Content-Type: application/x-www-form-urlencoded", b" folded", b"no colon",
)  # fmt: skip
_RARE_FIELD = b"Authorization: " + _basic(b"alice:wrong-password")
_BODIES = (
    b"", b"", b"", b"hello", b"user=alice&password=&next=/", b"5\r\nhello\r\n0\r\n\r\n", b"0\r\nTrailer: x\r\n\r\n",
    b"ffffffffff\r\n", b"5;extension=1\r\nhello\r\n", b"-1\r\n",
)  # fmt: skip


def http_source() -> Source:
    def one(rng: random.Random) -> bytes:
        fields = [rng.choice(_FIELDS) for _ in range(rng.randint(0, 4))]
        if rng.random() < _RARELY:
            fields.append(_RARE_FIELD)
        if rng.random() < 0.001:
            fields.append(b"Y: " + b"z" * rng.choice((60_000, 70_000, 200_000)))
        version = rng.choice((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b""))
        line = b"%s %s %s" % (rng.choice(_METHODS), rng.choice(_PATHS), version)
        return b"\r\n".join((line, *fields)) + b"\r\n\r\n" + rng.choice(_BODIES)

    def source(rng: random.Random) -> bytes:
        match rng.randrange(8):
            case 0:
                return rng.randbytes(rng.randint(1, 200))
            case 1:
                return b"\r\n" * rng.randint(1, 50) + one(rng)
            case 2:
                return b"".join(one(rng) for _ in range(rng.randint(2, 10)))
            case 3 | 4:
                return one(rng)
            case _:
                return changed(rng, one(rng))

    return source


def tls_source() -> Source:
    hellos = [_hello(version) for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)]

    def source(rng: random.Random) -> bytes:
        match rng.randrange(8):
            case 0:
                return rng.randbytes(rng.randint(1, 200))
            case 1:
                return b"\x16\3" + rng.randbytes(rng.randint(1, 300))
            case 2:
                # A record of the size that it announces, with random contents.
                body = rng.randbytes(rng.choice((0, 4, 100, 16 * 1024, 17_000)))
                return struct.pack(">BHH", rng.choice((20, 21, 22, 22, 22, 23)), 0x0301, len(body)) + body
            case 3:
                hello = rng.choice(hellos)
                return hello + changed(rng, hello)
            case _:
                return changed(rng, rng.choice(hellos))

    return source


def _hello(version: ssl.TLSVersion) -> bytes:
    """Return the first message of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = context.maximum_version = version
    outgoing = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake cannot end without a server")
