"""The trace of a connection: its lines, and bytes that Wireshark can import."""

from __future__ import annotations

import logging

import pytest
from stele.wire.kafka.headers import RequestHead

from app.tcp.kafka.trace import HEX_BYTES_MAX, Tracer, hex_dump

HEAD = RequestHead(api_key=3, version=9, correlation_id=42)
PEER = "('127.0.0.1', 50000)"


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stele.trace")


def test_a_request_and_its_response_are_a_line_each(caplog: pytest.LogCaptureFixture) -> None:
    tracer = Tracer(with_hex=False)
    tracer.request(PEER, "Metadata", HEAD, "größe", memoryview(bytes(27)))
    tracer.response(PEER, "Metadata", HEAD, 104, [bytes(54), bytes(50)])
    assert caplog.messages == [
        f"{PEER} > Metadata v9 correlation=42 client='größe' size=27",
        f"{PEER} < Metadata v9 correlation=42 size=100",
    ]


def test_a_request_without_a_response_and_the_end_of_a_connection_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tracer = Tracer(with_hex=True)
    tracer.unanswered(PEER, "Produce", HEAD)
    tracer.closed(PEER)
    assert caplog.messages == [f"{PEER} < Produce v9 correlation=42 none", f"{PEER} closed"]


def test_a_client_id_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    Tracer(with_hex=False).request(PEER, "Metadata", HEAD, "x\n2026 INFO forged", memoryview(bytes(8)))
    assert "\n" not in caplog.messages[0]


def test_with_hex_the_bytes_follow_without_their_size(caplog: pytest.LogCaptureFixture) -> None:
    tracer = Tracer(with_hex=True)
    tracer.request(PEER, "Metadata", HEAD, "", memoryview(b"request!"))
    # The size stands before the header, and records in a part of their own.
    tracer.response(PEER, "Metadata", HEAD, 4 + 11, [b"\0\0\0\x0bhead", b"-", b"records"[:6]])
    assert caplog.messages[0].splitlines()[1:] == [
        "000000  72 65 71 75 65 73 74 21                          request!"
    ]
    assert caplog.messages[1].splitlines()[1:] == [
        "000000  68 65 61 64 2d 72 65 63 6f 72 64                 head-record"
    ]


def test_a_dump_has_sixteen_bytes_a_line_and_their_text() -> None:
    assert hex_dump(bytes(range(0x3A, 0x5A)), total=32).splitlines() == [
        "000000  3a 3b 3c 3d 3e 3f 40 41 42 43 44 45 46 47 48 49  :;<=>?@ABCDEFGHI",
        "000010  4a 4b 4c 4d 4e 4f 50 51 52 53 54 55 56 57 58 59  JKLMNOPQRSTUVWXY",
    ]
    assert hex_dump(b"\x00\x1f\x20\x7e\x7f\xff", total=6).endswith("  .. ~..")
    assert hex_dump(b"", total=0) == ""


def test_only_the_head_of_a_large_message_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    tracer = Tracer(with_hex=True)
    tracer.request(PEER, "Produce", HEAD, "", memoryview(bytes(HEX_BYTES_MAX + 5)))
    tracer.response(PEER, "Fetch", HEAD, 4 + HEX_BYTES_MAX + 7, [bytes(10), bytes(HEX_BYTES_MAX), b"\0"])
    for message, left in zip(caplog.messages, (5, 7), strict=True):
        lines = message.splitlines()
        assert len(lines) == 1 + HEX_BYTES_MAX // 16 + 1
        assert lines[-1] == f"# {left} more bytes"
