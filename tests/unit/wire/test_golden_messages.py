"""The bytes of every message, and the error of every kind of malformed body, are those of the golden file."""

from __future__ import annotations

import pytest
from stele.wire import messages as m

from .golden import MESSAGES, Malformed, decode, described, error_of, golden_errors, golden_frames

FRAMES = golden_frames()
ERRORS = golden_errors()


def test_the_golden_file_has_every_type_and_no_message_that_is_not_in_the_cases() -> None:
    assert set(FRAMES) == {described(message) for message in MESSAGES}
    assert {frame[4] for frame in FRAMES.values()} == set(m.MessageType)
    assert {row.frame_type for row in ERRORS} == set(m.MessageType)


def test_every_response_type_has_its_ok_form_and_its_error_form() -> None:
    forms = {(frame[4], frame[5]) for frame in FRAMES.values() if frame[4] not in m.REQUESTS}
    assert forms == {(m.MessageType.ERROR, 0), *((kind, ok) for kind in m.RESPONSES for ok in (0, 1))}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_its_golden_bytes(message: m.Request | m.Response | m.ErrorResponse) -> None:
    assert message.encode().hex() == FRAMES[described(message)].hex()


@pytest.mark.parametrize("description", FRAMES, ids=lambda description: description.partition("(")[0])
def test_golden_bytes_are_read_as_their_message(description: str) -> None:
    frame = FRAMES[description]
    kind = "request" if frame[4] in m.REQUESTS else "response"
    assert described(decode(kind, frame[4], frame[5:])) == description


@pytest.mark.parametrize("row", ERRORS, ids=lambda row: f"{row.frame_type:02x}-{row.error[:40]}")
def test_a_malformed_body_is_refused_with_its_golden_text(row: Malformed) -> None:
    assert error_of(row.kind, row.frame_type, row.body) == row.error
