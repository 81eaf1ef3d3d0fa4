"""The bytes of every message, and the error of every kind of malformed body, are those of the golden file."""

from __future__ import annotations

import pytest
from stele.wire import messages as m

from .golden import MESSAGES, Malformed, decode, described, error_of, golden_errors, golden_frames

FRAMES = golden_frames()
# By the type of the frame.
ERRORS: dict[int, list[Malformed]] = {}
for _row in golden_errors():
    ERRORS.setdefault(_row.frame_type, []).append(_row)


def test_the_golden_file_has_every_type_and_no_message_that_is_not_in_the_cases() -> None:
    assert set(FRAMES) == {described(message) for message in MESSAGES}
    assert {frame[4] for frame in FRAMES.values()} == set(m.MessageType)
    assert set(ERRORS) == set(m.MessageType)


def test_every_response_type_has_its_ok_form_and_its_error_form() -> None:
    forms = {(frame[4], frame[5]) for frame in FRAMES.values() if frame[4] not in m.REQUESTS}
    assert forms == {(m.MessageType.ERROR, 0), *((kind, ok) for kind in m.RESPONSES for ok in (0, 1))}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_encoded_to_and_decoded_from_its_golden_bytes(
    message: m.Request | m.Response | m.ErrorResponse,
) -> None:
    description = described(message)
    frame = FRAMES[description]
    assert message.encode().hex() == frame.hex()
    kind = "request" if frame[4] in m.REQUESTS else "response"
    assert described(decode(kind, frame[4], frame[5:])) == description


@pytest.mark.parametrize("frame_type", ERRORS, ids=lambda frame_type: f"{frame_type:02x}")
def test_malformed_bodies_are_refused_with_their_golden_texts(frame_type: int) -> None:
    rows = ERRORS[frame_type]
    refused = {row: error_of(row.kind, frame_type, row.body) for row in rows}
    assert refused == {row: row.error for row in rows}
