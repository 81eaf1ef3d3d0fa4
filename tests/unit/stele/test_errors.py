"""Every code of the broker is a typed error that says whether to try again."""

from __future__ import annotations

import pickle

import pytest
from stele import errors
from stele.errors import (
    BrokerUnavailableError,
    OffsetOutOfRangeError,
    ProduceError,
    SteleClientError,
    UnsupportedOperationError,
    error_for,
)
from stele.operations.base import HttpAnswer, problem, result_of_frame
from stele.operations.tables import LookUpKey
from stele.records import Record
from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode

CODES = [code for code in ErrorCode if code is not ErrorCode.NONE]


@pytest.mark.parametrize("code", CODES, ids=str)
def test_every_code_has_its_error(code: ErrorCode) -> None:
    error = error_for(code, "why")
    assert (str(error), error.code) == ("why", code)
    assert error.retriable == code.retriable
    if code is not ErrorCode.UNKNOWN_SERVER_ERROR:
        assert type(error) is not SteleClientError


def all_errors() -> list[SteleClientError]:
    record = Record("t", 0, 0, 0, None, b"x")
    return [
        *(error_for(code, "why") for code in CODES),
        OffsetOutOfRangeError("why", log_start_offset=3, high_watermark=9),
        ProduceError({1: errors.ThrottledError("slow")}, [None, None]),
        errors.DeserializationError("why", record),
        errors.ClosedError("client"),
        errors.ConnectionLostError("gone"),
    ]


@pytest.mark.parametrize("error", all_errors(), ids=lambda error: type(error).__name__)
def test_errors_survive_a_trip_to_another_process_and_have_twins(error: SteleClientError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), error.twin()):
        assert type(other) is type(error)
        assert other is not error
        assert (str(other), other.code, other.retriable) == (str(error), error.code, error.retriable)
        assert set(other.__dict__) == set(error.__dict__)


def test_several_failures_are_retriable_together_only_if_each_is() -> None:
    slow, never = errors.ThrottledError("slow"), errors.InvalidRequestError("never")
    assert ProduceError({0: slow}, [None]).retriable
    mixed = ProduceError({0: slow, 2: never}, [None, None, None])
    assert not mixed.retriable
    assert str(mixed) == "2 of 3 records were not accepted; the first: slow"


def answer(status: int, body: bytes) -> HttpAnswer:
    return HttpAnswer(status=status, headers={}, body=body)


def test_a_problem_document_is_the_error_it_names() -> None:
    error = problem(
        answer(
            410,
            b'{"detail":"deleted","kafka_code":1,"log_start_offset":5,"log_end_offset":9,"retriable":false}',
        )
    )
    assert isinstance(error, OffsetOutOfRangeError)
    assert (str(error), error.log_start_offset, error.high_watermark) == ("deleted", 5, 9)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (503, b"", errors.BrokerUnavailableError),
        (502, b"<html>Bad gateway</html>", errors.BrokerUnavailableError),
        (429, b"[]", errors.ThrottledError),
        (404, b"null", errors.UnknownTopicError),
        (413, b'{"kafka_code":42}', errors.RecordTooLargeError),
        (500, b'{"title":5}', SteleClientError),
        (400, b'{"kafka_code":42,"errors":[{"index":0,"kafka_code":10}]}', errors.RecordTooLargeError),
        (400, b'{"kafka_code":42,"errors":[]}', errors.InvalidRequestError),
    ],
)
def test_an_answer_of_something_before_the_broker_is_read_as_far_as_it_goes(
    status: int, body: bytes, expected: type[SteleClientError]
) -> None:
    assert type(problem(answer(status, body))) is expected


def test_the_broker_knows_best_whether_to_try_again() -> None:
    error = problem(answer(500, b'{"kafka_code":2,"retriable":false}'))
    assert isinstance(error, errors.CorruptRecordsError)
    assert not error.retriable


def test_a_broker_that_is_older_than_a_request_is_named_as_the_cause() -> None:
    frame = m.ErrorResponse(
        response_type=m.MessageType.ERROR, message="frame type 0x37 is not a request"
    ).encode()
    with pytest.raises(UnsupportedOperationError, match=r"does not know LookUpKey .*upgrade the broker"):
        result_of_frame(LookUpKey(topic="t", key=b"k"), frame[4], frame[5:])


@pytest.mark.parametrize(
    ("message", "expected", "is_retriable"),
    [
        ("the broker is shutting down; connect again when it is back", BrokerUnavailableError, True),
        ("too many connections; close one, or raise connections_max", BrokerUnavailableError, True),
        ("no request arrived within the idle timeout", BrokerUnavailableError, True),
        (
            "frame length is 4; it counts the whole frame and must be between 5 and 9 bytes",
            SteleClientError,
            False,
        ),
    ],
)
def test_a_broker_that_ends_a_connection_is_tried_again_unless_the_client_is_at_fault(
    message: str, expected: type[SteleClientError], is_retriable: bool
) -> None:
    frame = m.ErrorResponse(response_type=m.MessageType.ERROR, message=message).encode()
    with pytest.raises(SteleClientError) as raised:
        result_of_frame(LookUpKey(topic="t", key=b"k"), frame[4], frame[5:])
    assert (type(raised.value), raised.value.retriable, str(raised.value)) == (
        expected,
        is_retriable,
        message,
    )
