"""What the HTTP listener takes outside of bodies: its size, its time, and how many requests wait."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from app.api.http.connection import HEAD_BYTES_MAX, PIPELINED_REQUESTS_MAX
from app.settings import Settings
from tests.support.before_login import GOOD_CLIENT, Wire, targets
from tests.support.certificates import Authority
from tests.support.simulated_time import simulated

HEAD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
PIECE = b"x" * 4096
PIECES = HEAD_BYTES_MAX // len(PIECE)


async def played(path: Path, *pieces: bytes, wait_s: float = 1.0) -> Wire:
    """Return what became of a connection that sends ``pieces`` and then nothing for ``wait_s``."""
    async with targets(path, Authority(path)) as all_targets:
        target = all_targets["http"]
        wire, connection = Wire(GOOD_CLIENT), target.connect(GOOD_CLIENT)
        connection.connection_made(wire)
        for piece in pieces:
            if wire.is_over:
                break
            connection.data_received(piece)
            assert target.held_bytes(connection) <= target.held_bytes_max + len(piece)
            # Time for the response, if the request is whole.
            await asyncio.sleep(0.01)
        await asyncio.sleep(wait_s)
        is_over = wire.is_over
        connection.connection_lost(None)
        wire.is_over = is_over
        return wire


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([HEAD, b"X: ", *[PIECE] * (PIECES + 1)], id="a value without an end"),
        pytest.param([HEAD, *[PIECE] * (PIECES + 1)], id="a name without an end"),
        pytest.param([b"GET /", *[PIECE] * (PIECES + 1)], id="a URL without an end"),
        pytest.param([HEAD, *[b"X: y\r\n" * 100] * 120], id="fields without an end"),
        pytest.param([b"\r\n" * 2048] * (PIECES + 1), id="empty lines without an end"),
        pytest.param([HEAD + b"X: " + PIECE * (PIECES + 1) + b"\r\n\r\n"], id="a whole head in one piece"),
    ],
)
@simulated
async def test_a_head_that_is_too_large_is_refused(pieces: list[bytes], tmp_path: Path) -> None:
    wire = await played(tmp_path, *pieces)
    assert wire.written.startswith(b"HTTP/1.1 431 ")
    assert b"more than 65536 bytes" in wire.written
    assert wire.is_over


@simulated
async def test_a_head_within_the_limit_is_served_in_any_pieces(tmp_path: Path) -> None:
    fields = b"".join(b"X-%d: %s\r\n" % (number, PIECE) for number in range(PIECES - 1))
    head = HEAD + fields + b"\r\n"
    assert HEAD_BYTES_MAX * 0.9 < len(head) < HEAD_BYTES_MAX
    whole = await played(tmp_path, head)
    assert whole.written.startswith(b"HTTP/1.1 200 ")
    (tmp_path / "cut").mkdir()
    cut = await played(tmp_path / "cut", *(head[i : i + 1000] for i in range(0, len(head), 1000)))
    assert cut.written.startswith(b"HTTP/1.1 200 ")
    assert not cut.is_over


@simulated
async def test_trailers_have_a_limit_and_the_connection_ends(tmp_path: Path) -> None:
    begin = b"POST /console/login HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    wire = await played(tmp_path, begin, *[b"X: y\r\n" * 100] * 120)
    assert wire.is_over


@simulated
async def test_a_body_has_no_limit_here_however_small_its_chunks(tmp_path: Path) -> None:
    begin = b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"1\r\nx\r\n" * 50_000
    assert len(chunks) > HEAD_BYTES_MAX
    wire = await played(
        tmp_path,
        begin,
        *(chunks[i : i + 999] for i in range(0, len(chunks), 999)),
        b"0\r\n\r\n" + HEAD + b"\r\n",
    )
    # The first request lacks a login, the second needs none.
    assert wire.written.startswith(b"HTTP/1.1 401 ")
    assert b"HTTP/1.1 200 OK" in wire.written


@simulated
async def test_requests_that_wait_have_a_limit(tmp_path: Path) -> None:
    wire = await played(tmp_path, (HEAD + b"\r\n") * (PIPELINED_REQUESTS_MAX + 1))
    assert wire.written.count(b"HTTP/1.1 200 OK") == PIPELINED_REQUESTS_MAX + 1
    (tmp_path / "more").mkdir()
    wire = await played(tmp_path / "more", (HEAD + b"\r\n") * (PIPELINED_REQUESTS_MAX + 2))
    assert wire.is_over
    assert b"HTTP/1.1 431" not in wire.written, "it would be taken for the answer to an earlier request"


@simulated
async def test_a_head_must_be_complete_in_time(tmp_path: Path) -> None:
    timeout_s = Settings().frame_timeout_ms / 1000
    served = (HEAD + b"\r\n", HEAD)
    assert not (await played(tmp_path, *served, wait_s=timeout_s - 1)).is_over
    (tmp_path / "late").mkdir()
    assert (await played(tmp_path / "late", *served, wait_s=timeout_s + 1)).is_over


@simulated
async def test_a_body_that_was_refused_must_end_in_time(tmp_path: Path) -> None:
    begin = b"PUT /v1/topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
    wire = await played(tmp_path, begin, b"x", b"x", wait_s=Settings().frame_timeout_ms / 1000 + 1)
    assert wire.written.startswith(b"HTTP/1.1 401 ")
    assert wire.is_over


@simulated
async def test_a_login_form_must_arrive_in_time(tmp_path: Path) -> None:
    begin = b"POST /console/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nuser"
    timeout_s = Settings().login_timeout_ms / 1000
    assert not (await played(tmp_path, begin, wait_s=timeout_s - 1)).written
    (tmp_path / "late").mkdir()
    assert (await played(tmp_path / "late", begin, wait_s=timeout_s + 1)).written


@simulated
async def test_a_client_that_says_nothing_before_its_login_is_closed(tmp_path: Path) -> None:
    timeout_s = Settings().login_timeout_ms / 1000
    assert timeout_s < Settings().idle_timeout_ms / 1000
    assert not (await played(tmp_path, wait_s=timeout_s - 1)).is_over
    (tmp_path / "late").mkdir()
    assert (await played(tmp_path / "late", wait_s=timeout_s + 1)).is_over
