"""The HTTP listener held against RFC 9110 and RFC 9112: a table over bare sockets.

Each row is tried with its body in the segment of the head and in a later one. No body is ever executed as a request:
most bodies are requests that would delete a topic, and would be answered with an id of their own.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest
from stele.testing import BrokerProcess, run_broker

from app.api.rights import NEEDS
from tests.support.raw_http import RawConnection, RawResponse
from tests.support.waiting import eventually

_numbers = itertools.count()


def gzipped(body: bytes) -> bytes:
    """Return the same bytes in every process."""
    return gzip.compress(body, mtime=0)


VICTIM = "victim"
# A request in the place of a body. Its id would be in the response to it.
INNER = f"DELETE /v1/topics/{VICTIM} HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: smuggled\r\n\r\n".encode()
AFTER = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: after\r\n\r\n"
SEGMENTS = pytest.mark.parametrize("segments", ["one segment", "two segments"])
H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA"
OCTETS = "Content-Type: application/octet-stream"


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as broker:
        with httpx.Client(base_url=broker.http_url) as client:
            client.put(f"/v1/topics/{VICTIM}").raise_for_status()
        yield broker
        log = broker.stderr
    assert "Traceback" not in log, log
    assert "ERROR" not in log, log


@pytest.fixture(scope="module")
def http(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=60) as client:
        yield client


@pytest.fixture
def topic(http: httpx.Client) -> str:
    name = f"conformance-{next(_numbers)}"
    http.put(f"/v1/topics/{name}").raise_for_status()
    return name


def head_of(first: str, *fields: str) -> bytes:
    return "\r\n".join((first, "Host: localhost", "X-Request-Id: row", *fields, "", "")).encode("latin-1")


def produce(topic: str, *fields: str, version: str = "HTTP/1.1") -> bytes:
    return head_of(f"POST /v1/topics/{topic}/records {version}", *fields)


def length(body: bytes) -> str:
    return f"Content-Length: {len(body)}"


def exchange(broker: BrokerProcess, head: bytes, body: bytes, segments: str) -> list[RawResponse]:
    """Send a request and one after it; return the responses to both, or those before the broker closed."""
    with RawConnection(broker.http_url) as connection:
        connection.send(*((head, body) if segments == "two segments" else (head + body,)))
        connection.send(AFTER)
        return connection.responses("after")


def values_of(http: httpx.Client, topic: str) -> list[bytes]:
    answer = http.get(f"/v1/topics/{topic}/partitions/0/records", params={"from": 0})
    return [record["value"].encode() for record in answer.json()["records"]]


def assert_nothing_smuggled(http: httpx.Client, responses: list[RawResponse]) -> None:
    assert "smuggled" not in [response.request_id for response in responses]
    assert http.get(f"/v1/topics/{VICTIM}").status_code == 200, "the body of a request was executed"


# ── framing ──


def chunked(*chunks: bytes, extension: bytes = b"", end: bytes = b"0\r\n\r\n") -> bytes:
    return b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks) + end


@dataclass(frozen=True, slots=True)
class Framed:
    """A body as it is sent, and the fields that say so; it always contains ``INNER``."""

    fields: tuple[str, ...]
    sent: bytes
    version: str = "HTTP/1.1"


CHUNKED = "Transfer-Encoding: chunked"
WHOLE = {
    "a length": Framed((length(INNER),), INNER),
    "a length with blanks around it": Framed((f"Content-Length: \t {len(INNER)} \t",), INNER),
    "a length with zeros before it": Framed((f"Content-Length: 000{len(INNER)}",), INNER),
    "one chunk": Framed((CHUNKED,), chunked(INNER)),
    "chunks of a byte": Framed((CHUNKED,), chunked(*(INNER[i : i + 1] for i in range(len(INNER))))),
    "chunked in capitals": Framed(("TRANSFER-ENCODING: ChUnKeD",), chunked(INNER)),
    "a chunk size with zeros": Framed((CHUNKED,), b"0000%X\r\n%b\r\n0000\r\n\r\n" % (len(INNER), INNER)),
    "chunk extensions": Framed((CHUNKED,), chunked(INNER, extension=b';a=1;b="x;y"')),
    "trailers": Framed((CHUNKED,), chunked(INNER, end=b"0\r\nX-Checksum: 1\r\nRecord-Key: k\r\n\r\n")),
    "a body of HTTP/1.0": Framed((length(INNER),), INNER, "HTTP/1.0"),
}
UPGRADES = {
    "no upgrade": (),
    "h2c": (H2C,),
    "websocket": (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ),
    "TLS": ("Connection: upgrade\r\nUpgrade: TLS/1.2, HTTP/1.1",),
    "anything": ("UPGRADE: foo\r\nCONNECTION: x-other\r\nConnection: keep-alive,UPGRADE",),
    "an upgrade that is not nominated": ("Upgrade: h2c",),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize("framing", WHOLE)
def test_a_body_is_read_as_it_is_framed_whatever_upgrade_is_offered(
    broker: BrokerProcess, http: httpx.Client, topic: str, framing: str, upgrade: str
) -> None:
    framed = WHOLE[framing]
    head = produce(topic, OCTETS, *UPGRADES[upgrade], *framed.fields, version=framed.version)
    expected = ["row"] if framed.version == "HTTP/1.0" else ["row", "after"]
    for segments in ("one segment", "two segments"):
        responses = exchange(broker, head, framed.sent, segments)
        assert responses[0].status == 200, responses[0].body
        assert [response.request_id for response in responses] == expected
        assert_nothing_smuggled(http, responses)
    records = http.get(f"/v1/topics/{topic}/partitions/0/records", params={"from": 0}).json()["records"]
    # A trailer of the name Record-Key is no field of the request.
    assert [(record["key"], record["value"]) for record in records] == [(None, INNER.decode())] * 2


@pytest.mark.parametrize("upgrade", UPGRADES)
@pytest.mark.parametrize(
    ("kind", "body", "stored"),
    [
        ("application/json", b'{"records":[{"value":"json"}]}', b"json"),
        ("application/x-ndjson", b'{"value":"line"}\n', b"line"),
        ("application/octet-stream", b"octets", b"octets"),
    ],
)
def test_each_kind_of_produce_gets_its_body_whatever_upgrade_is_offered(
    broker: BrokerProcess, http: httpx.Client, topic: str, kind: str, body: bytes, stored: bytes, upgrade: str
) -> None:
    head = produce(topic, f"Content-Type: {kind}", length(body), *UPGRADES[upgrade])
    # From the second time on over the direct way, where there is one.
    for segments in ("one segment", "one segment", "two segments"):
        assert [response.status for response in exchange(broker, head, body, segments)] == [200, 200]
    assert values_of(http, topic) == [stored] * 3


@dataclass(frozen=True, slots=True)
class Broken:
    """Fields that are refused with ``status``; the connection ends."""

    status: int
    fields: tuple[str, ...]
    sent: bytes = INNER
    first: str = "POST /v1/topics/{topic}/records HTTP/1.1"
    is_bare: bool = False


LENGTH = length(INNER)
BROKEN = {
    "two equal lengths": Broken(400, (LENGTH, LENGTH)),
    "two different lengths": Broken(400, (LENGTH, "Content-Length: 0")),
    "a list of lengths": Broken(400, (f"Content-Length: {len(INNER)}, {len(INNER)}",)),
    "a negative length": Broken(400, ("Content-Length: -1",)),
    "a length with a plus": Broken(400, (f"Content-Length: +{len(INNER)}",)),
    "a hexadecimal length": Broken(400, ("Content-Length: 0x10",)),
    "a length with a fraction": Broken(400, ("Content-Length: 10.0",)),
    "a length with an underscore": Broken(400, ("Content-Length: 1_0",)),
    "an empty length": Broken(400, ("Content-Length:",)),
    "a length with a blank inside": Broken(400, ("Content-Length: 1 0",)),
    "a length beyond 64 bits": Broken(400, ("Content-Length: 18446744073709551626",)),
    "a length of digits that are not ASCII": Broken(400, ("Content-Length: \xb2",)),
    "a length after chunked": Broken(400, (CHUNKED, LENGTH), chunked(INNER)),
    "a length before chunked": Broken(400, (LENGTH, CHUNKED), chunked(INNER)),
    "a length of zero and chunked": Broken(400, ("Content-Length: 0", CHUNKED), chunked(INNER)),
    "chunked twice": Broken(400, (CHUNKED, CHUNKED), chunked(INNER)),
    "chunked twice in a list": Broken(400, ("Transfer-Encoding: chunked, chunked",), chunked(INNER)),
    "chunked before another coding": Broken(400, ("Transfer-Encoding: chunked, gzip",), chunked(INNER)),
    "chunked after another coding": Broken(501, ("Transfer-Encoding: gzip, chunked",), chunked(INNER)),
    "an unknown coding": Broken(501, ("Transfer-Encoding: xchunked",), chunked(INNER)),
    "identity": Broken(501, ("Transfer-Encoding: identity",)),
    "an empty coding": Broken(400, ("Transfer-Encoding:",)),
    "a coding with a parameter": Broken(501, ("Transfer-Encoding: chunked;q=1",), chunked(INNER)),
    "a coding in quotation marks": Broken(501, ('Transfer-Encoding: "chunked"',), chunked(INNER)),
    "a coding after a vertical tab": Broken(400, ("Transfer-Encoding: \x0bchunked",), chunked(INNER)),
    "chunked over HTTP/1.0": Broken(
        400, (CHUNKED,), chunked(INNER), "POST /v1/topics/{topic}/records HTTP/1.0"
    ),
    "a blank before the colon": Broken(400, ("Content-Length : 0", LENGTH)),
    "a tab before the colon": Broken(400, ("Transfer-Encoding\t: chunked", LENGTH)),
    "a blank before the name": Broken(400, (" Content-Length: 0", LENGTH)),
    "a folded field": Broken(400, ("X-Folded: a\r\n Content-Length: 0", LENGTH)),
    "a bare line feed": Broken(400, ("X-Bare: a\nContent-Length: 0", LENGTH)),
    "a bare carriage return": Broken(400, ("X-Bare: a\rContent-Length: 0", LENGTH)),
    "a NUL in a value": Broken(400, ("X-Nul: a\0b", LENGTH)),
    "a NUL in a name": Broken(400, ("X-\0Nul: a", LENGTH)),
    "a field without a name": Broken(400, (": a", LENGTH)),
    "a field without a colon": Broken(400, ("Content-Length", LENGTH)),
    "two hosts": Broken(400, ("Host: other", LENGTH)),
    "a host with a path": Broken(400, (LENGTH,), is_bare=True),
    "two kinds of content": Broken(400, (OCTETS, "Content-Type: application/json", LENGTH)),
    "an expectation that is unknown": Broken(417, ("Expect: 200-ok", LENGTH)),
    "two expectations": Broken(417, ("Expect: 100-continue, x", LENGTH)),
}


@SEGMENTS
@pytest.mark.parametrize("row", BROKEN)
def test_a_head_that_could_be_read_in_two_ways_is_refused_and_nothing_after_it_is_read(
    broker: BrokerProcess, http: httpx.Client, topic: str, row: str, segments: str
) -> None:
    broken = BROKEN[row]
    kind = () if row == "two kinds of content" else (OCTETS,)
    head = head_of(broken.first.replace("{topic}", topic), *kind, *broken.fields)
    if broken.is_bare:
        head = head.replace(b"Host: localhost", b"Host: localhost/v1")
    responses = exchange(broker, head, broken.sent, segments)
    assert [response.status for response in responses] == [broken.status]
    assert responses[0].fields["content-type"] == "application/problem+json"
    assert responses[0].fields["x-request-id"]
    assert responses[0].fields["connection"] == "close"
    assert responses[0].fields["cache-control"] == "no-store"
    assert responses[0].fields["x-content-type-options"] == "nosniff"
    assert values_of(http, topic) == []
    assert_nothing_smuggled(http, responses)


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson", "application/octet-stream"])
def test_a_produce_whose_body_has_no_length_is_refused(
    broker: BrokerProcess, http: httpx.Client, topic: str, kind: str, version: str
) -> None:
    """RFC 1945, 8.3: otherwise one that ends with the connection would be an empty record."""
    with RawConnection(broker.http_url) as connection:
        connection.send(produce(topic, f"Content-Type: {kind}", version=version))
        answer = connection.response()
    assert answer is not None
    assert answer.status == 400
    assert b"send Content-Length" in answer.body
    assert values_of(http, topic) == []
    sent = http.post(f"/v1/topics/{topic}/records", content=b"", headers={"content-type": kind})
    assert sent.status_code == (400 if kind == "application/json" else 200)


BROKEN_CHUNKS = {
    "a size without a digit": b"\r\n" + INNER,
    "a negative size": b"-5\r\nhello\r\n0\r\n\r\n",
    "a size with a plus": b"+5\r\nhello\r\n0\r\n\r\n",
    "a size with 0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a size with an underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "a size beyond 64 bits": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "a size with a blank after it": b"5 \r\nhello\r\n0\r\n\r\n",
    "a size that ends in a bare line feed": b"5\nhello\r\n0\r\n\r\n",
    "a size that ends in a bare carriage return": b"5\rhello\r\n0\r\n\r\n",
    "an extension with a line feed": b"5;a\n=b\r\nhello\r\n0\r\n\r\n",
    "a quoted extension with a line feed": b'5;a="\n"\r\nhello\r\n0\r\n\r\n',
    "a chunk longer than its size": b"4\r\nhello\r\n0\r\n\r\n",
    "a chunk that ends in a bare line feed": b"5\r\nhello\n0\r\n\r\n",
    "a chunk that ends in two other bytes": b"5\r\nhelloXX0\r\n\r\n",
    "a last chunk that ends in other bytes": b"5\r\nhello\r\n0\r\nX:" + INNER,
    "a trailer that is no field": b"5\r\nhello\r\n0\r\nno field\r\n\r\n",
    "a folded trailer": b"5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n",
}


@SEGMENTS
@pytest.mark.parametrize("row", BROKEN_CHUNKS)
def test_a_body_with_broken_chunks_stores_nothing_and_ends_the_connection(
    broker: BrokerProcess, http: httpx.Client, topic: str, row: str, segments: str
) -> None:
    sent = BROKEN_CHUNKS[row] + (b"" if INNER in BROKEN_CHUNKS[row] else INNER)
    responses = exchange(broker, produce(topic, OCTETS, CHUNKED), sent, segments)
    if row == "a last chunk that ends in other bytes":
        # A trailer of the name X, which is dropped.
        assert [response.status for response in responses] == [200, 200]
        assert values_of(http, topic) == [b"hello"]
    else:
        assert [response.status for response in responses] == [400]
        assert values_of(http, topic) == []
    assert_nothing_smuggled(http, responses)


@SEGMENTS
def test_lines_before_broken_chunks_are_stored_and_the_answer_is_no_success(
    broker: BrokerProcess, http: httpx.Client, topic: str, segments: str
) -> None:
    body = b'10\r\n{"value":"line"}\r\nZ\r\n'
    head = produce(topic, "Content-Type: application/x-ndjson", CHUNKED)
    responses = exchange(broker, head, body, segments)
    assert [response.status for response in responses] == [400]
    assert values_of(http, topic) in ([b"line"], [])


# ── request lines ──


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /healthz HTTP/1.1", 200),
        ("GET /healthz HTTP/1.0", 200),
        ("HEAD /healthz HTTP/1.1", 200),
        ("OPTIONS * HTTP/1.1", 204),
        ("GET http://localhost/healthz HTTP/1.1", 200),
        ("GET HTTP://localhost:8080/healthz?a=b HTTP/1.1", 200),
        ("GET http://localhost HTTP/1.1", 200),
        ("GET /%68ealthz HTTP/1.1", 200),
        ("GET /healthz?a=%00&b=%zz HTTP/1.1", 200),
        ("GET /nothing HTTP/1.1", 404),
        ("GET //healthz HTTP/1.1", 404),
        ("GET /v1/../healthz HTTP/1.1", 404),
        ("GET /v1%2Ftopics HTTP/1.1", 404),
        ("GET /v1/topics/a%00b HTTP/1.1", 400),
        ("GET /v1/topics/a%2Fb HTTP/1.1", 400),
        ("GET /v1/topics/%FF HTTP/1.1", 400),
        ("GET /v1/groups/%C3%28 HTTP/1.1", 400),
        ("GET http://other.example/healthz HTTP/1.1", 403),
        ("GET http://u:p@localhost/healthz HTTP/1.1", 400),
        ("GET http:///healthz HTTP/1.1", 400),
        ("GET ftp://localhost/healthz HTTP/1.1", 400),
        ("GET localhost:80 HTTP/1.1", 400),
        ("GET healthz HTTP/1.1", 400),
        ("GET * HTTP/1.1", 400),
        ("GET /healthz#part HTTP/1.1", 400),
        ("GET /he\xe4lthz HTTP/1.1", 400),
        ("GET /he\x00lthz HTTP/1.1", 400),
        ("GET /he\tlthz HTTP/1.1", 400),
        ("GET /healthz x HTTP/1.1", 400),
        ("GET /healthz\tHTTP/1.1", 400),
        ("GET /healthz", 505),
        ("GET /healthz HTTP/0.9", 505),
        ("GET /healthz HTTP/1.2", 505),
        ("GET /healthz HTTP/2.0", 505),
        ("GET /healthz HTTP/3", 400),
        ("PRI * HTTP/2.0", 400),
        ("GET /healthz http/1.1", 400),
        ("GET /healthz HTTPS/1.1", 400),
        ("GET /healthz HTTP/1.10", 505),
        ("GET /healthz HTTP/11", 400),
        ("get /healthz HTTP/1.1", 501),
        ("BREW /healthz HTTP/1.1", 501),
        ("CONNECT localhost:80 HTTP/1.1", 501),
        ("TRACE /healthz HTTP/1.1", 405),
        ("PROPFIND /healthz HTTP/1.1", 405),
        ("OPTIONS /healthz HTTP/1.1", 405),
        ("\x16\x03\x01\x02", 400),
        ("{}", 400),
    ],
)
def test_request_lines_are_read_as_the_standard_says(broker: BrokerProcess, line: str, status: int) -> None:
    if line.startswith("\x16\x03"):
        # Without the first byte of TLS, which is answered with an alert.
        line = line[1:]
    with RawConnection(broker.http_url) as connection:
        connection.send(head_of(line))
        response = connection.response(is_head=line.startswith("HEAD"))
        assert response is not None
        assert response.status == status, response
        assert response.version == "HTTP/1.1"
        if status == 204:
            assert "GET" in response.fields["allow"]


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [
        ("HTTP/1.1", [], 400),
        ("HTTP/1.0", [], 200),
        ("HTTP/1.1", ["localhost"], 200),
        ("HTTP/1.1", ["LOCALHOST:8080"], 200),
        ("HTTP/1.1", ["[::1]:8080"], 200),
        ("HTTP/1.1", ["localhost", "localhost"], 400),
        ("HTTP/1.0", ["localhost", "other"], 400),
        ("HTTP/1.1", ["localhost, other"], 400),
        ("HTTP/1.1", ["localhost other"], 400),
        ("HTTP/1.1", ["user@localhost"], 400),
        ("HTTP/1.1", ["localhost/path"], 400),
        ("HTTP/1.1", ["localhost:80:80"], 400),
        ("HTTP/1.1", ["localhost:port"], 400),
    ],
)
def test_a_request_names_one_host(broker: BrokerProcess, version: str, hosts: list[str], status: int) -> None:
    lines = [f"GET /healthz {version}", *(f"Host: {host}" for host in hosts), "", ""]
    with RawConnection(broker.http_url) as connection:
        connection.send("\r\n".join(lines).encode())
        response = connection.response()
        assert response is not None
        assert response.status == status
        assert ("connection" in response.fields) == (status == 400 or version == "HTTP/1.0")


def test_the_preface_of_http_2_is_answered_in_http_1(broker: BrokerProcess) -> None:
    with RawConnection(broker.http_url) as connection:
        connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + INNER)
        response = connection.response()
        assert response is not None
        assert response.status == 505
        assert connection.has_ended()


# ── connections ──


@pytest.mark.parametrize(
    ("version", "option", "is_kept"),
    [
        ("HTTP/1.1", "", True),
        ("HTTP/1.1", "Connection: keep-alive", True),
        ("HTTP/1.1", "Connection: close", False),
        ("HTTP/1.1", "Connection: CLOSE", False),
        ("HTTP/1.1", "Connection: x, close", False),
        ("HTTP/1.1", f"{H2C}\r\nConnection: close", False),
        ("HTTP/1.0", "", False),
        ("HTTP/1.0", "Connection: close", False),
    ],
)
def test_a_connection_is_kept_or_closed_as_the_standard_says(
    broker: BrokerProcess, version: str, option: str, is_kept: bool
) -> None:
    with RawConnection(broker.http_url) as connection:
        connection.send(head_of(f"GET /healthz {version}", *((option,) if option else ())) + AFTER)
        ids = [response.request_id for response in connection.responses("after")]
        assert ids == (["row", "after"] if is_kept else ["row"])


def test_a_stream_for_a_client_of_http_1_0_ends_with_the_connection(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    http.post(f"/v1/topics/{topic}/records", json={"records": [{"value": "x" * 1000} for _ in range(100)]})
    path = f"/v1/topics/{topic}/partitions/0/records?from=0"
    with RawConnection(broker.http_url) as connection:
        connection.send(head_of(f"GET {path} HTTP/1.0"))
        response = connection.response()
        assert response is not None
        assert "transfer-encoding" not in response.fields
        assert len(json.loads(response.body)["records"]) == 100


def test_pipelined_requests_are_answered_in_their_order(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    sent = b"".join(
        head_of(f"POST /v1/topics/{topic}/records HTTP/1.1", OCTETS, length(b"%d" % number), *upgrade)
        + b"%d" % number
        for number, upgrade in enumerate([(), (H2C,)] * 20)
    )
    with RawConnection(broker.http_url) as connection:
        connection.send(sent, AFTER)
        responses = connection.responses("after")
    assert [response.status for response in responses] == [200] * 41
    assert values_of(http, topic) == [b"%d" % number for number in range(40)]


def test_what_cannot_be_read_is_answered_after_the_requests_before_it(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    """In the middle of another response, or before it, it would be taken for a part of that one."""
    lines = b"".join(b'{"value":"%b"}\n' % (b"x" * 1000) for _ in range(2000))
    http.post(f"/v1/topics/{topic}/records", content=lines, headers={"content-type": "application/x-ndjson"})
    page = head_of(f"GET /v1/topics/{topic}/partitions/0/records?from=0&limit=2000 HTTP/1.1")
    for rest in (b"NONSENSE\r\n\r\n", produce(topic, OCTETS, CHUNKED) + b"X\r\n"):
        with RawConnection(broker.http_url) as connection:
            connection.send(page + rest + INNER)
            responses = connection.responses("after")
        assert [response.status for response in responses] == [200, 400]
        assert len(json.loads(responses[0].body)["records"]) == 2000
        assert_nothing_smuggled(http, responses)


def test_a_client_that_ends_its_stream_gets_the_response_to_a_whole_request(broker: BrokerProcess) -> None:
    with RawConnection(broker.http_url) as connection:
        connection.send(head_of("GET /v1/topics HTTP/1.1"))
        connection.end_sending()
        response = connection.response()
        assert response is not None
        assert response.status == 200
        assert connection.has_ended()


@pytest.mark.parametrize("framing", ["Content-Length: 999", CHUNKED])
@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("application/json", b'{"records":[{"value":"cut"}]}'),
        ("application/octet-stream", b"cut"),
        ("application/x-ndjson", b'{"value":"whole"}\n{"value":"cut"'),
    ],
)
@SEGMENTS
def test_an_upload_that_is_cut_stores_whole_lines_at_most(
    broker: BrokerProcess, http: httpx.Client, topic: str, kind: str, part: bytes, framing: str, segments: str
) -> None:
    head = produce(topic, f"Content-Type: {kind}", framing)
    body = chunked(part, end=b"") if framing == CHUNKED else part
    with RawConnection(broker.http_url) as connection:
        connection.send(*((head, body) if segments == "two segments" else (head + body,)))
        connection.end_sending()
        assert connection.has_ended(), "a request without its end was answered"
    if "ndjson" in kind:
        eventually(lambda: values_of(http, topic) == [b"whole"], "the whole line is stored")
    else:
        assert values_of(http, topic) == []


# ── Expect ──


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/1.0"])
def test_a_client_that_waits_for_100_gets_it_before_it_sends_its_body(
    broker: BrokerProcess, http: httpx.Client, topic: str, version: str
) -> None:
    head = produce(topic, OCTETS, length(INNER), "Expect: 100-Continue", version=version)
    with RawConnection(broker.http_url) as connection:
        connection.send(head)
        if version == "HTTP/1.1":
            interim = connection.response()
            assert interim is not None
            assert interim.status == 100
        connection.send(INNER)
        response = connection.response()
        assert response is not None
        assert response.status == 200
    assert values_of(http, topic) == [INNER]


def test_a_client_that_waits_for_100_and_is_refused_is_disconnected(
    broker: BrokerProcess, http: httpx.Client
) -> None:
    """Whether its body follows is not known, so what follows must not be read as a request."""
    head = head_of(
        "POST /v1/topics/no%20name/records HTTP/1.1", OCTETS, length(INNER), "Expect: 100-continue"
    )
    with RawConnection(broker.http_url) as connection:
        connection.send(head)
        response = connection.response()
        assert response is not None
        assert response.status == 400
        assert response.fields["connection"] == "close"
        connection.send(INNER)
        assert connection.has_ended()
    assert_nothing_smuggled(http, [response])


# ── content codings ──


def joined(body: bytes) -> bytes:
    """Return two files of gzip after each other, which are one."""
    return gzipped(body[:9]) + gzipped(body[9:])


def deflated(body: bytes) -> bytes:
    return zlib.compress(body)


PLAIN = b'{"records":[{"value":"plain"}]}'
LINES = b'{"value":"plain"}\n{"value":"plain"}\n'


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("coding", "encode"),
    [
        ("gzip", gzipped),
        ("x-gzip", gzipped),
        ("GZIP", gzipped),
        ("deflate", deflated),
        ("identity", bytes),
        ("identity, gzip", gzipped),
        ("gzip", joined),
    ],
)
@pytest.mark.parametrize(
    ("kind", "body", "stored"),
    [
        ("application/json", PLAIN, [b"plain"]),
        ("application/x-ndjson", LINES, [b"plain", b"plain"]),
        ("application/octet-stream", b"plain" * 100_000, [b"plain" * 100_000]),
    ],
)
@SEGMENTS
def test_a_coded_body_is_decoded(
    broker: BrokerProcess,
    http: httpx.Client,
    topic: str,
    coding: str,
    encode: Callable[[bytes], bytes],
    kind: str,
    body: bytes,
    stored: list[bytes],
    segments: str,
) -> None:
    sent = encode(body)
    head = produce(topic, f"Content-Type: {kind}", f"Content-Encoding: {coding}", length(sent))
    responses = exchange(broker, head, sent, segments)
    assert [response.status for response in responses] == [200, 200], responses[0].body
    assert values_of(http, topic) == stored


@pytest.mark.parametrize(
    ("coding", "sent"),
    [
        ("gzip", b"no gzip"),
        ("gzip", gzipped(b"cut" * 1000)[:-1]),
        ("gzip", gzipped(b"x" * 1000)[:12]),
        ("gzip", gzipped(b"more") + b"junk"),
        ("gzip", zlib.compress(b"other")),
        ("deflate", zlib.compress(b"sum")[:-4] + b"0000"),
        ("gzip", INNER),
        # Nothing at all is no coding of an empty value.
        ("gzip", b""),
        ("deflate", b""),
    ],
)
@pytest.mark.parametrize("kind", ["application/octet-stream", "application/json"])
def test_a_body_that_is_not_coded_as_it_says_stores_nothing(
    broker: BrokerProcess, http: httpx.Client, topic: str, coding: str, sent: bytes, kind: str
) -> None:
    head = produce(topic, f"Content-Type: {kind}", f"Content-Encoding: {coding}", length(sent))
    responses = exchange(broker, head, sent, "one segment")
    assert [response.status for response in responses] == [400, 200]
    assert values_of(http, topic) == []


def test_a_small_body_cannot_become_a_large_one(
    broker: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    bomb = gzipped(bytes(64 << 20))
    for kind in ("application/octet-stream", "application/json", "application/x-ndjson"):
        head = produce(topic, f"Content-Type: {kind}", "Content-Encoding: gzip", length(bomb))
        assert exchange(broker, head, bomb, "one segment")[0].status == 413
    assert values_of(http, topic) == []


# ── types ──


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (None, 200),
        ("application/json", 200),
        ("Application/JSON", 200),
        ("application/json; charset=utf-8", 200),
        ('application/json;charset="UTF-8"', 200),
        ("application/json; x=y", 200),
        ("application/json; charset=iso-8859-1", 415),
        ("application/json;a=b;charset=utf-16", 415),
        ("application/xml", 415),
        ("text/plain", 415),
        ("*/*", 415),
    ],
)
def test_the_type_of_a_body_decides_how_it_is_read(
    http: httpx.Client, topic: str, kind: str | None, status: int
) -> None:
    headers = {} if kind is None else {"content-type": kind}
    # The second one takes the direct way, where there is one.
    for _ in range(2):
        answer = http.post(f"/v1/topics/{topic}/records", content=PLAIN, headers=headers)
        assert answer.status_code == status


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ([], "application/json"),
        (["*/*"], "application/json"),
        (["application/x-ndjson"], "application/x-ndjson"),
        (["APPLICATION/X-NDJSON"], "application/x-ndjson"),
        (["application/x-ndjson;q=0.5, application/json;q=0.4"], "application/x-ndjson"),
        (["application/json;q=0.1", "application/x-ndjson"], "application/x-ndjson"),
        (["application/json;q=0, */*"], "application/x-ndjson"),
        (["application/*;q=0.1, application/octet-stream"], "application/octet-stream"),
        (["text/html, */*;q=0.01"], "application/json"),
        (["application/x-ndjson;q=0.9, application/json;q=nan"], "application/x-ndjson"),
        (["application/x-ndjson, application/json;q=9"], "application/x-ndjson"),
        (["text/html"], None),
        (["application/json;q=0"], None),
        (["*/*;q=0"], None),
    ],
)
def test_the_type_of_a_page_is_the_one_that_the_client_prefers(
    http: httpx.Client, topic: str, accept: list[str], expected: str | None
) -> None:
    http.post(f"/v1/topics/{topic}/records", content=PLAIN)
    request = http.build_request("GET", f"/v1/topics/{topic}/partitions/0/records?from=0")
    del request.headers["accept"]
    request.headers = httpx.Headers(
        [*request.headers.raw, *((b"accept", value.encode()) for value in accept)]
    )
    answer = http.send(request)
    if expected is None:
        assert answer.status_code == 406
    else:
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == expected


@pytest.mark.parametrize(
    "field",
    [
        "If-None-Match: *",
        'If-None-Match: "x"',
        "If-Modified-Since: Fri, 31 Dec 2099 23:59:59 GMT",
        "Range: bytes=0-1",
        "Range: records=0-1",
        'If-Range: "x"\r\nRange: bytes=0-1',
        "TE: trailers, deflate",
        "Accept-Encoding: gzip;q=1, identity;q=0",
        "Trailer: X",
        "Keep-Alive: timeout=0",
        "Max-Forwards: 0",
        "Via: 1.1 proxy",
    ],
)
def test_what_is_not_offered_is_ignored(broker: BrokerProcess, topic: str, field: str) -> None:
    with RawConnection(broker.http_url) as connection:
        connection.send(
            head_of(f"GET /v1/topics/{topic}/partitions/0/records?from=0 HTTP/1.1", field) + AFTER
        )
        responses = connection.responses("after")
    assert [response.status for response in responses] == [200, 200]
    assert "content-range" not in responses[0].fields
    assert json.loads(responses[0].body)["records"] == []


# ── limits ──


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (head_of("GET /healthz HTTP/1.1", "X: " + "x" * 70_000), 431),
        (head_of("GET /healthz HTTP/1.1", *["X: y"] * 20_000), 431),
        (head_of("GET /healthz HTTP/1.1", "X: " + "x" * 60_000), 200),
    ],
)
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_head_has_a_limit(broker: BrokerProcess, head: bytes, status: int, pieces: int) -> None:
    size = -(-len(head) // pieces)
    with RawConnection(broker.http_url) as connection:
        connection.send(*(head[i : i + size] for i in range(0, len(head), size)))
        response = connection.response()
        assert response is not None
        assert response.status == status


# ── every route ──


def routes() -> list[tuple[str, str]]:
    """Return method and path of each route, from the table that all of them must be in."""
    return sorted((method, path) for method, path in NEEDS if not path.startswith("/v1/_"))


# Pages that a broker without logins and without others beside it does not have.
NOT_HERE = {"/console/login", "/console/logout", "/console/cluster"}
PATHS = sorted({path for _, path in routes()})
GETS = sorted(path for method, path in routes() if method == "GET")


def at(path: str, topic: str) -> str:
    path = path.replace("{topic}", topic).replace("{partition}", "0").replace("{offset}", "0")
    return re.sub(r"\{[^}]*\}", "7", path)


@pytest.mark.every(3)
@pytest.mark.parametrize(("method", "path"), [route for route in routes() if route[0] != "GET"])
def test_no_route_leaves_its_body_to_be_read_as_a_request(
    broker: BrokerProcess, http: httpx.Client, method: str, path: str
) -> None:
    ways = itertools.product(
        ("a length", "one chunk"), ("no upgrade", "h2c"), ("one segment", "two segments")
    )
    for way in ways:
        framing, upgrade, segments = way
        framed = WHOLE[framing]
        target = at(path, f"route-{next(_numbers)}")
        head = head_of(f"{method} {target} HTTP/1.1", *UPGRADES[upgrade], *framed.fields)
        responses = exchange(broker, head, framed.sent, segments)
        # Each is answered once, and the request after it is the next.
        assert [response.request_id for response in responses] == ["row", "after"], way
        assert responses[0].status < 500, way
    assert_nothing_smuggled(http, [])


@pytest.mark.every(4)
@pytest.mark.parametrize(("method", "path"), routes())
def test_no_route_reads_a_body_of_an_unknown_coding_or_with_two_ends(
    broker: BrokerProcess, http: httpx.Client, method: str, path: str
) -> None:
    target = at(path, f"route-{next(_numbers)}")
    coded = head_of(f"{method} {target} HTTP/1.1", "Content-Encoding: br", length(INNER))
    responses = exchange(broker, coded, INNER, "one segment")
    assert responses[0].status == 415
    assert responses[0].fields["accept-encoding"] == "gzip, deflate"
    assert responses[-1].request_id == "after"
    for fields in (BROKEN["a length before chunked"].fields, BROKEN["chunked after another coding"].fields):
        head = head_of(f"{method} {target} HTTP/1.1", *fields)
        responses = exchange(broker, head, chunked(INNER), "two segments")
        assert [response.status for response in responses] in ([400], [501])
        assert_nothing_smuggled(http, responses)


@pytest.mark.every(3)
@pytest.mark.parametrize("path", sorted(set(PATHS) - NOT_HERE))
def test_a_method_that_a_path_does_not_have_is_answered_with_those_it_has(
    http: httpx.Client, topic: str, path: str
) -> None:
    declared = {method for method, other in routes() if other == path}
    answered: dict[str, httpx.Response] = {}
    for method in ("OPTIONS", "TRACE", "PROPFIND", "GET", "PATCH", "POST", "PUT", "DELETE"):
        with http.stream(method, at(path, topic)) as answer:
            answered[method] = answer
    refused = {method: answer for method, answer in answered.items() if answer.status_code == 405}
    # A path whose last part takes slashes covers others.
    methods = set(answered) - set(refused)
    assert methods >= declared
    for answer in refused.values():
        expected = {*methods, "HEAD"} if "GET" in methods else methods
        assert set(answer.headers["allow"].split(", ")) == expected


@pytest.mark.every(3)
@pytest.mark.parametrize("path", GETS)
def test_head_is_answered_as_get_without_a_body(
    broker: BrokerProcess, http: httpx.Client, topic: str, path: str
) -> None:
    http.post(f"/v1/topics/{topic}/records", content=PLAIN)
    target = at(path, topic)
    with http.stream("GET", target) as got:
        expected = got.status_code, got.headers.get("content-type")
    with RawConnection(broker.http_url) as connection:
        connection.send(head_of(f"HEAD {target} HTTP/1.1") + AFTER)
        head = connection.response(is_head=True)
        after = connection.response()
    assert head is not None
    assert after is not None, "the response to HEAD had a body"
    assert (head.status, head.fields.get("content-type")) == expected
    assert (after.status, after.request_id) == (200, "after")


@pytest.mark.every(4)
@pytest.mark.parametrize(("method", "path"), routes())
def test_no_answer_of_the_api_is_kept_or_taken_for_a_page(
    http: httpx.Client, topic: str, method: str, path: str
) -> None:
    http.post(f"/v1/topics/{topic}/records", content=PLAIN)
    with http.stream(method, at(path, topic)) as answer:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers.get_list("cache-control") != []
        if path.startswith("/v1/"):
            assert answer.headers["cache-control"] == "no-store"


def test_a_client_that_leaves_a_large_response_is_no_error(broker: BrokerProcess, http: httpx.Client) -> None:
    """With a request behind it, and one whose body is incomplete."""
    topic = f"large-{next(_numbers)}"
    lines = b"".join(b'{"value":"%b"}\n' % (b"x" * 1000) for _ in range(8000))
    http.post(f"/v1/topics/{topic}/records", content=lines, headers={"content-type": "application/x-ndjson"})
    large = head_of(f"GET /v1/topics/{topic}/partitions/0/records?from=0&limit=8000 HTTP/1.1")
    before = _failures(http)
    for rest in (b"", AFTER, AFTER * 50, produce(topic, OCTETS, "Content-Length: 99") + b"x"):
        with RawConnection(broker.http_url) as connection:
            connection.send(large + rest)
            # Its head has come, and most of its body is in the way.
            assert connection._take_until(b"\r\n\r\n") is not None
    assert http.get("/healthz").status_code == 200
    assert _failures(http) == before


def _failures(http: httpx.Client) -> list[str]:
    return re.findall(r'^stele_http_requests_total\{.*status="5.*$', http.get("/metrics").text, re.MULTILINE)
