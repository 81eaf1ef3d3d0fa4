"""Every message survives the trip, and no body that is not one gets through."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode, error_code
from stele.wire.framing import FrameReader

from .messages_cases import REQUESTS, RESPONSES

MESSAGES = [*REQUESTS, *RESPONSES]


def name(message: object) -> str:
    return type(message).__name__


def frame_of(message: m.Message) -> tuple[int, bytes]:
    (frame,) = FrameReader().feed(message.encode())
    return frame


def decode(message: m.Message, body: bytes) -> m.Message:
    frame_type, _ = frame_of(message)
    if isinstance(message, m.Request):
        return m.decode_request(frame_type, body)
    return m.decode_response(frame_type, body)


def test_every_message_has_a_case() -> None:
    assert {type(case) for case in REQUESTS} == set(m.REQUESTS.values())
    assert {type(case) for case in RESPONSES} == {*m.RESPONSES.values(), m.ErrorResponse}


def test_a_request_is_answered_by_the_type_after_it() -> None:
    assert {kind + 1 for kind in m.REQUESTS} == set(m.RESPONSES)


@pytest.mark.parametrize("message", MESSAGES, ids=name)
def test_what_is_encoded_is_decoded(message: m.Message) -> None:
    _, body = frame_of(message)
    assert _plain(decode(message, body)) == _plain(message)
    assert b"".join(message.encode_parts()) == message.encode()


def _plain(value: Any) -> Any:
    """Sequences as lists: a tuple that was sent comes back as a list or the other way round."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    if is_dataclass(value):
        return type(value), {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


@pytest.mark.parametrize("message", MESSAGES, ids=name)
def test_every_missing_byte_and_an_extra_one_is_an_error(message: m.Message) -> None:
    _, body = frame_of(message)
    for size in range(len(body)):
        with pytest.raises(m.MessageError):
            decode(message, body[:size])
    with pytest.raises(m.MessageError):
        decode(message, body + b"\x00")


@given(st.sampled_from(sorted(m.REQUESTS)), st.binary(max_size=200))
@example(m.MessageType.METADATA_REQUEST, bytes.fromhex("00 7fffffff"))
def test_any_bytes_are_a_request_or_a_message_error(kind: int, body: bytes) -> None:
    try:
        message = m.decode_request(kind, body)
    except m.MessageError:
        return
    assert frame_of(message) == (kind, body) or kind == m.MessageType.METADATA_REQUEST


@given(st.integers(0, 255), st.binary(max_size=200))
def test_any_bytes_are_a_response_or_a_message_error(kind: int, body: bytes) -> None:
    with contextlib.suppress(m.MessageError):
        m.decode_response(kind, body)


@given(st.sampled_from(MESSAGES), st.data())
def test_a_changed_byte_gives_a_message_or_a_message_error(message: m.Message, data: st.DataObject) -> None:
    frame_type, body = frame_of(message)
    if not body:
        return
    changed = bytearray(body)
    changed[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        if isinstance(message, m.Request):
            m.decode_request(frame_type, bytes(changed))
        else:
            m.decode_response(frame_type, bytes(changed))
    except m.MessageError:
        pass


HUGE = bytes.fromhex("7fffffff")
LYING = [
    (m.MessageType.METADATA_REQUEST, b"\x00" + HUGE),
    (m.MessageType.FETCH_REQUEST, bytes(12) + HUGE),
    (m.MessageType.CREATE_TOPIC_REQUEST, bytes(8) + HUGE),
    (m.MessageType.PRODUCE_REQUEST, HUGE),
    (m.MessageType.CONSUME_RESPONSE, b"\x01" + bytes(8) + HUGE),
    (m.MessageType.METADATA_RESPONSE, b"\x01" + bytes(4) + HUGE),
    (m.MessageType.FETCH_RESPONSE, b"\x01" + HUGE),
]


@pytest.mark.parametrize(("kind", "body"), LYING)
def test_a_lying_count_or_length_allocates_nothing(kind: int, body: bytes) -> None:
    decode_one = m.decode_request if kind in m.REQUESTS else m.decode_response
    # The first use of a type compiles its decoder.
    with pytest.raises(m.MessageError):
        decode_one(kind, body)
    tracemalloc.start()
    try:
        with pytest.raises(m.MessageError):
            decode_one(kind, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


def test_bad_utf_8_names_the_field() -> None:
    with pytest.raises(m.MessageError, match="topic is not valid UTF-8"):
        m.decode_request(m.MessageType.DELETE_TOPIC_REQUEST, b"\x00\x00\x00\x01\xff")


def test_a_value_that_does_not_exist_is_named_before_the_bytes_that_trail() -> None:
    body = b"\x01" + bytes(36) + b"\x09" + b"trailing"
    with pytest.raises(m.MessageError, match="durability 9 does not exist"):
        m.decode_response(m.MessageType.PRODUCE_BATCH_RESPONSE, body)


def test_an_error_of_the_extension_carries_its_number() -> None:
    frame = m.ErrorResponse(
        response_type=m.MessageType.FLUSH_TOPIC_RESPONSE,
        code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        message="no",
    ).encode()
    assert frame == bytes.fromhex("0000000e 1a 00 0003 00000002") + b"no"


def test_numbers_this_release_does_not_know_are_unknown_server_errors() -> None:
    assert error_code(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error_code(1) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_batches_stand_in_the_parts_of_a_frame_uncopied() -> None:
    batches = [b"first", b"second"]
    parts = m.FetchResponse(
        partitions=[m.FetchedPartition(topic="t", partition=p, batches=b) for p, b in enumerate(batches)]
    ).encode_parts()
    assert [id(part) for part in parts if part in batches] == [id(b) for b in batches]


def test_a_number_that_does_not_fit_its_field_is_not_written() -> None:
    with pytest.raises(struct.error):
        m.ListOffsetsRequest(topic="t", partition=2**31, timestamp_ms=0).encode()


def test_a_message_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        m.ConsumeRequest(topic="t", offset=0, batch_size=1).offset = 5  # pyright: ignore[reportAttributeAccessIssue]


def test_a_type_that_is_no_request_has_no_decoder() -> None:
    with pytest.raises(KeyError):
        m.decode_request(m.MessageType.FLUSH_RESPONSE, b"")


def test_produce_answers_in_a_row_are_those_messages() -> None:
    answers = b"".join(m.ProduceResponse(offset=offset).encode() for offset in (5, 6, 7))
    assert m.encode_produce_responses(5, 3) == answers
