"""Requests over HTTP in any pieces, and the time that a client has for them; on a simulated clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator

import pytest
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.server import ServerState

from app.api.http import connection as http_connection
from app.api.http.connection import BODY_BYTES_PER_S, HttpConnection
from app.api.http.exchange import BODY
from app.api.records.stream_slots import SlottedStream
from app.network.pending_bytes import FREE_BYTES, PendingBytes
from app.turns import Turns
from tests.support.before_login import Wire
from tests.support.simulated_time import simulated
from tests.support.turns import CallsPerTurn

HEAD_S, IDLE_S = 30.0, 600.0
PENDING = 1 << 20
INNER = b"DELETE /x HTTP/1.1\r\nHost: a\r\n\r\n"


class Seen:
    """An application that keeps what it was asked, and answers with it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes, bool]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, is_whole = b"", False
        while not is_whole:
            message = await receive()
            if message["type"] != "http.request":
                break
            body += message["body"]
            is_whole = not message["more_body"]
        self.requests.append((scope["method"], scope["path"], body, is_whole))
        if is_whole:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})


class Server:
    """Connections to ``app``, without sockets."""

    def __init__(self, app: ASGIApp) -> None:
        self._config = uvicorn.Config(app, log_config=None, lifespan="off", proxy_headers=False)
        self._config.load()
        self.state = ServerState()
        self.pending = PendingBytes(PENDING)
        self.readings, self.turns = Turns(64), Turns(2)

    def connect(self) -> tuple[Wire, HttpConnection]:
        class Connection(HttpConnection):
            head_timeout_s, idle_timeout_s, pending = HEAD_S, IDLE_S, self.pending
            readings, turns = self.readings, self.turns

        wire, connection = Wire("10.0.0.1"), Connection(self._config, self.state, {})
        connection.connection_made(wire)
        return wire, connection


async def settled() -> None:
    """Let everything go on until nothing here is left to do: all of it takes a few turns of the loop, and no time."""
    for _ in range(100):
        await asyncio.sleep(0)


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"


def sequences() -> Iterator[tuple[str, bytes]]:
    """Yield requests that follow one another, of which the bodies are requests."""
    length = b"Content-Length: %d\r\n" % len(INNER)
    chunks = b"%x;a=b\r\n%b\r\n1\r\n!\r\n0\r\nTrailer: t\r\n\r\n" % (len(INNER), INNER)
    for upgrade in (b"", H2C):
        host = b"Host: a\r\n" + upgrade
        first = b"POST /1 HTTP/1.1\r\n" + host + length + b"\r\n" + INNER
        second = b"PUT /2?q HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
        third = b"GET /3 HTTP/1.1\r\n" + host + b"\r\n"
        last = b"POST /4 HTTP/1.1\r\n" + host + length + b"Connection: close\r\n\r\n" + INNER + INNER
        yield ("upgrades" if upgrade else "plain"), first + second + third + last


EXPECTED = [
    ("POST", "/1", INNER, True),
    ("PUT", "/2", INNER + b"!", True),
    ("GET", "/3", b"", True),
    ("POST", "/4", INNER, True),
]


@pytest.mark.parametrize(("name", "sent"), list(sequences()))
@simulated
async def test_requests_are_the_same_however_they_are_cut(name: str, sent: bytes) -> None:
    pieces = [[sent[:cut], sent[cut:]] for cut in range(1, len(sent))]
    pieces += [[sent[i : i + size] for i in range(0, len(sent), size)] for size in (1, 2, 3, 7)]
    for cut in pieces:
        app = Seen()
        server = Server(app)
        wire, connection = server.connect()
        for piece in cut:
            connection.data_received(piece)
        await settled()
        assert app.requests == EXPECTED, cut
        assert wire.written.count(b"HTTP/1.1 200 ") == len(EXPECTED)
        assert wire.is_over
        connection.connection_lost(None)
        assert server.pending.held == 0
        assert not server.state.tasks


async def answered_after(server: Server, *pieces: bytes, every_s: float, wait_s: float) -> bytes:
    """Return what was written ``wait_s`` after the last of ``pieces``, which came ``every_s`` after each other."""
    wire, connection = server.connect()
    for piece in pieces:
        if wire.is_over:
            break
        connection.data_received(piece)
        await asyncio.sleep(every_s)
    await asyncio.sleep(wait_s)
    connection.connection_lost(None)
    await settled()
    return bytes(wire.written)


def begin(size: int) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size


@simulated
async def test_a_body_may_not_stand_still() -> None:
    server = Server(Seen())
    assert await answered_after(server, begin(9), b"x", every_s=HEAD_S / 2 - 1, wait_s=0) == b""
    late = await answered_after(server, begin(9), b"x", every_s=1, wait_s=HEAD_S)
    assert late.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in late
    assert (await answered_after(server, begin(9), every_s=HEAD_S + 1, wait_s=0)).startswith(b"HTTP/1.1 408 ")


@simulated
async def test_a_body_may_not_come_byte_by_byte_for_ever() -> None:
    app = Seen()
    dripped = await answered_after(Server(app), begin(9), *[b"x"] * 8, every_s=HEAD_S / 2, wait_s=0)
    assert dripped.startswith(b"HTTP/1.1 408 ")
    assert [is_whole for _, _, _, is_whole in app.requests] == [False]
    second = b"x" * BODY_BYTES_PER_S
    steady = await answered_after(Server(app), begin(50 * len(second)), *[second] * 50, every_s=1, wait_s=0)
    assert steady.startswith(b"HTTP/1.1 200 ")


@simulated
async def test_a_stream_may_pause_between_its_parts() -> None:
    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        body = scope[BODY]
        body.is_stream = True
        while (message := await receive())["type"] == "http.request":
            if message["body"].endswith(b"\n"):
                body.release(len(message["body"]))

    whole = await answered_after(Server(stream), begin(99), b"line\n", every_s=HEAD_S * 2, wait_s=IDLE_S / 2)
    assert whole == b""
    part = await answered_after(Server(stream), begin(99), b"line\n", b"part", every_s=1, wait_s=HEAD_S + 1)
    assert part.startswith(b"HTTP/1.1 408 ")
    silent = await answered_after(Server(stream), begin(99), b"line\n", every_s=1, wait_s=IDLE_S + 1)
    assert silent.startswith(b"HTTP/1.1 408 ")


@simulated
async def test_the_broker_waits_for_itself_without_a_limit() -> None:
    """A body that is not read, because the application is busy or another request is served, is not late."""
    done = asyncio.Event()

    async def busy(scope: Scope, receive: Receive, send: Send) -> None:
        await done.wait()
        await Seen()(scope, receive, send)

    wire, connection = Server(busy).connect()
    size = 10 * FREE_BYTES
    connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" + begin(size) + bytes(size // 2))
    assert wire.is_paused
    await asyncio.sleep(10 * IDLE_S)
    done.set()
    await settled()
    assert not wire.is_paused
    connection.data_received(bytes(size // 2))
    await settled()
    assert wire.written.count(b"HTTP/1.1 200 ") == 2
    connection.connection_lost(None)


@simulated
async def test_a_client_is_not_late_while_the_application_waits_for_something_else() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        scope[BODY].is_stream = True
        await receive()
        await asyncio.sleep(10 * HEAD_S)
        await Seen()(scope, receive, send)

    wire, connection = Server(slow).connect()
    connection.data_received(begin(2) + b"x")
    await asyncio.sleep(10 * HEAD_S + 1)
    connection.data_received(b"y")
    await settled()
    assert wire.written.startswith(b"HTTP/1.1 200 ")
    connection.connection_lost(None)


@simulated
async def test_bodies_of_all_connections_have_a_limit_and_what_ends_leaves_its_room() -> None:
    app = Seen()
    server = Server(app)
    first = server.connect()
    first[1].data_received(begin(2 * PENDING) + bytes(PENDING))
    await settled()
    assert server.pending.held == PENDING - FREE_BYTES
    refused = await answered_after(server, begin(2 * PENDING), bytes(FREE_BYTES * 3), every_s=0, wait_s=0.01)
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 1" in refused
    small = await answered_after(server, begin(FREE_BYTES), bytes(FREE_BYTES), every_s=0, wait_s=0.01)
    assert small.startswith(b"HTTP/1.1 200 ")
    first[1].connection_lost(None)
    await settled()
    assert server.pending.held == 0
    served = await answered_after(server, begin(PENDING), bytes(PENDING), every_s=0, wait_s=0.01)
    assert served.startswith(b"HTTP/1.1 200 ")
    assert server.pending.held == 0


@simulated
async def test_a_disconnect_reaches_the_request_that_is_served_and_those_after_it_never_begin() -> None:
    seen: list[Message] = []
    begun: list[str] = []

    async def tail(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await receive()
        seen.append(await receive())
        # What is sent to a client that has left is dropped.
        await send({"type": "http.response.body", "body": b"more", "more_body": True})

    wire, connection = Server(tail).connect()
    connection.data_received(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(9)))
    await settled()
    connection.connection_lost(None)
    await settled()
    assert begun == ["/0"]
    assert seen == [{"type": "http.disconnect"}]
    assert b"more" not in wire.written


@simulated
async def test_a_request_that_ends_because_its_client_has_left_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    wire, connection = Server(app).connect()
    connection.data_received(b"GET /1 HTTP/1.1\r\nHost: a\r\n\r\n")
    await settled()
    connection.eof_received()
    await settled()
    assert wire.is_closing()
    assert not wire.written
    assert not caplog.records


@simulated
async def test_a_response_whose_length_is_wrong_has_no_end() -> None:
    async def wrong(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    for path, is_whole in ((b"/ab", True), (b"/a", False), (b"/abc", False)):
        wire, connection = Server(wrong).connect()
        connection.data_received(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % path)
        await settled()
        assert wire.is_over is not is_whole
        connection.connection_lost(None)


@simulated
async def test_no_field_of_a_response_can_begin_another() -> None:
    async def injected(scope: Scope, receive: Receive, send: Send) -> None:
        fields = [(b"content-length", b"0"), (b"x", b"a\r\nset-cookie: b")]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body"})

    wire, connection = Server(injected).connect()
    connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await settled()
    assert b"set-cookie" not in wire.written
    assert wire.is_over
    connection.connection_lost(None)


class Waiting:
    """An application whose streams send a part, and then wait for what never comes."""

    def __init__(self) -> None:
        self.ended = 0

    async def _content(self) -> AsyncGenerator[bytes]:
        try:
            yield b"part"
            await asyncio.get_running_loop().create_future()
        finally:
            self.ended += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await SlottedStream(self._content(), None, media_type="text/plain")(scope, receive, send)


@pytest.mark.parametrize("leave", ["connection_lost", "eof_received", "both"])
async def test_a_stream_that_waits_ends_when_its_client_leaves_and_needs_no_second_task(leave: str) -> None:
    app = Waiting()
    before = len(asyncio.all_tasks())
    wire, connection = Server(app).connect()
    connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await settled()
    assert wire.written.endswith(b"4\r\npart\r\n")
    assert len(asyncio.all_tasks()) == before + 1
    if leave != "connection_lost":
        connection.eof_received()
    if leave != "eof_received":
        connection.connection_lost(None)
    await settled()
    assert app.ended == 1
    assert len(asyncio.all_tasks()) == before
    assert not wire.written.endswith(b"0\r\n\r\n"), "the answer is not whole"


async def test_a_stream_that_is_cancelled_stays_cancelled() -> None:
    app = Waiting()
    server = Server(app)
    _, connection = server.connect()
    connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await settled()
    (task,) = server.state.tasks
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert app.ended == 1


async def test_requests_of_many_clients_begin_in_portions_in_the_order_in_which_they_came() -> None:
    seen: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun(int(scope["path"][1:]))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    begun = CallsPerTurn(seen.append)
    server = Server(app)
    wires: list[Wire] = []
    for number in range(10):
        wire, connection = server.connect()
        connection.data_received(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number)
        wires.append(wire)
    for _ in range(3 * len(wires)):
        await asyncio.sleep(0)
    assert seen == list(range(10))
    # Those of the turn in which they came, and the next portion.
    assert begun.most <= 4
    assert all(wire.written.startswith(b"HTTP/1.1 200") for wire in wires)


async def test_a_request_whose_client_leaves_before_it_begins_is_forgotten() -> None:
    seen = Seen()
    server = Server(seen)
    connections = [server.connect()[1] for _ in range(3)]
    for connection in connections:
        connection.data_received(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
    for connection in connections:
        connection.connection_lost(None)
    await settled()
    assert not server.state.tasks
    assert all(connection.held_bytes == 0 for connection in connections)


class Readings:
    """A server of which two connections are read from per turn, with more connections than that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = Seen()
        self.fed = CallsPerTurn(HttpConnection._feed)
        monkeypatch.setattr(HttpConnection, "_feed", lambda *given: self.fed(*given))  # type: ignore[misc]
        self.server = Server(self.app)
        self.server.readings, self.server.turns = Turns(2), Turns(1000)
        self.connections = [self.server.connect() for _ in range(10)]


async def test_what_comes_from_many_clients_in_one_turn_is_parsed_in_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = Readings(monkeypatch)
    for number, (wire, connection) in enumerate(readings.connections):
        connection.data_received(b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbo" % number)
        assert wire.is_paused == (number >= 2), "what is kept of a client is what has arrived in one turn"
    await settled()
    assert not any(wire.is_paused for wire, _ in readings.connections)
    for _, connection in readings.connections:
        connection.data_received(b"dy")
    await settled()
    assert readings.fed.total == 2 * len(readings.connections)
    # Those of the turn in which they came, and the next portion.
    assert readings.fed.most <= 4
    assert readings.app.requests == [("POST", f"/{number}", b"body", True) for number in range(10)]


async def test_few_clients_are_parsed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = Readings(monkeypatch)
    for _, connection in readings.connections[2:]:
        connection.connection_lost(None)
    for wire, connection in readings.connections[:2] * 5:
        connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert not wire.is_paused
    assert readings.fed.total == 10


async def test_a_client_that_ends_its_stream_before_its_request_is_parsed_gets_its_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = Readings(monkeypatch)
    for _, connection in readings.connections:
        connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        # Over TLS it comes with the request.
        assert connection.eof_received()
    await settled()
    for wire, _ in readings.connections:
        assert wire.written.startswith(b"HTTP/1.1 200")
        assert wire.is_over


async def test_a_client_that_leaves_before_its_request_is_parsed_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = Readings(monkeypatch)
    for _, connection in readings.connections:
        connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    for _, connection in readings.connections[2:]:
        assert connection.held_bytes
        connection.connection_lost(None)
        assert not connection.held_bytes
    await settled()
    assert len(readings.app.requests) == 2


async def test_chunks_of_a_few_bytes_are_parsed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "_TURN_S", 0.0)
    readings = Readings(monkeypatch)
    wire, connection = readings.connections[0]
    count = 4 * http_connection._PIECE_BYTES // 6
    connection.data_received(
        b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * count
    )
    assert wire.is_paused
    await settled()
    assert not wire.is_paused
    connection.data_received(b"0\r\n\r\n")
    await settled()
    assert readings.fed.most <= 3, "the clock is looked at after each piece"
    assert readings.app.requests == [("POST", "/x", b"x" * count, True)]
