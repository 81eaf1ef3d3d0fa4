"""The six messages of ADR-0009, byte for byte.

The hex is written by hand from the layouts of the protocol, not by this code:

    PRODUCE request   [length:4][03][topic length:4][topic][data length:4][data]
    PRODUCE response  [length:4][04][1][offset:8]       [length:4][04][0][error length:4][error]
    CONSUME request   [length:4][01][topic length:4][topic][offset:8][batch size:4]
    CONSUME response  [length:4][02][1][next offset:8][count:4]([message length:4][offset:8][data])*
    FLUSH request     [length:4][05]
    FLUSH response    [length:4][06][1]                 [length:4][06][0][error length:4][error]
"""

from __future__ import annotations

import pytest
from stele.wire import messages as m
from stele.wire.framing import FrameReader

BYTES: list[tuple[m.Request | m.Response | m.ErrorResponse, str]] = [
    (
        m.ProduceRequest(topic="orders", data=b"hello"),
        "00000018 03 00000006 6f7264657273 00000005 68656c6c6f",
    ),
    (m.ProduceRequest(topic="é", data=b""), "0000000f 03 00000002 c3a9 00000000"),
    (m.ProduceResponse(offset=258), "0000000e 04 01 0000000000000102"),
    (
        m.ErrorResponse(response_type=0x04, message="no"),
        "0000000c 04 00 00000002 6e6f",
    ),
    (
        m.ConsumeRequest(topic="t", offset=-2, batch_size=100),
        "00000016 01 00000001 74 fffffffffffffffe 00000064",
    ),
    (
        m.ConsumeResponse(next_offset=5, messages=[(3, b"ab"), (4, b"")]),
        "0000002c 02 01 0000000000000005 0000000200000002 0000000000000003 616200000000 0000000000000004",
    ),
    (m.ConsumeResponse(next_offset=0, messages=[]), "00000012 02 01 0000000000000000 00000000"),
    (m.ErrorResponse(response_type=0x02, message="no"), "0000000c 02 00 00000002 6e6f"),
    (m.FlushRequest(), "00000005 05"),
    (m.FlushResponse(), "00000006 06 01"),
    (m.ErrorResponse(response_type=0x06, message="no"), "0000000c 06 00 00000002 6e6f"),
    (m.ErrorResponse(response_type=0x00, message="no"), "0000000c 00 00 00000002 6e6f"),
]


@pytest.mark.parametrize(("message", "expected"), BYTES)
def test_a_message_has_exactly_these_bytes(
    message: m.Request | m.Response | m.ErrorResponse, expected: str
) -> None:
    assert message.encode().hex() == bytes.fromhex(expected).hex()


@pytest.mark.parametrize(("message", "expected"), BYTES)
def test_these_bytes_are_read_as_the_message(
    message: m.Request | m.Response | m.ErrorResponse, expected: str
) -> None:
    ((kind, body),) = FrameReader().feed(bytes.fromhex(expected))
    read = m.decode_request(kind, body) if isinstance(message, m.Request) else m.decode_response(kind, body)
    assert read == message
