"""An operation with the fields of a request of the binary protocol is that request."""

from __future__ import annotations

from typing import Any

import pytest
from stele.errors import ProtocolError, UnsupportedOperationError
from stele.operations.base import HttpAnswer, Operation, result_of_frame
from stele.operations.groups import Claim, Heartbeat, JoinGroup
from stele.operations.leases import Ack, Extend
from stele.operations.quotas import ListQuotas
from stele.operations.tables import TableFetch
from stele.operations.topics import CreateTopic, Ping
from stele.operations.users import AddUser
from stele.wire import messages as m

OWNER: dict[str, Any] = {"group": "g", "member_id": "m", "generation": 3, "topic": "t", "partition": 1}


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        (
            Heartbeat(group="g", member_id="m", generation=3),
            m.HeartbeatRequest(group="g", member_id="m", generation=3),
        ),
        (
            JoinGroup(group="g", topics=["t"], session_timeout_ms=5),
            m.JoinGroupRequest(group="g", topics=["t"], session_timeout_ms=5),
        ),
        (Claim(**OWNER), m.ClaimRequest(**OWNER)),
        (Extend(group="g", lease="l", lease_ms=7), m.ExtendRequest(group="g", lease="l", lease_ms=7)),
        (
            CreateTopic(topic="t", configs=(("a", None),)),
            m.CreateTopicRequest(topic="t", configs=(("a", None),)),
        ),
        (Ping(), m.MetadataRequest(topics=())),
    ],
)
def test_its_frame_is_that_of_the_request(operation: Operation[object], request_: m.Request) -> None:
    assert operation.to_frame().encode() == request_.encode()
    assert operation.to_frame().encode_parts() == request_.encode_parts()


def test_an_operation_without_a_frame_names_the_other_protocol() -> None:
    with pytest.raises(UnsupportedOperationError, match="ListQuotas works over HTTP only"):
        ListQuotas().to_frame()


def test_the_response_to_another_request_is_refused() -> None:
    frame = m.NackResponse().encode()
    with pytest.raises(ProtocolError, match="NackResponse instead of AckResponse"):
        result_of_frame(Ack(group="g", lease="l"), frame[4], frame[5:])
    frame = m.AckResponse().encode()
    assert result_of_frame(Ack(group="g", lease="l"), frame[4], frame[5:]) is None


def test_a_table_over_http_is_what_stands_between_the_reports_of_progress() -> None:
    body = (
        b'{"partition":0,"offset":8,"timestamp":1,"key":"new","value":"1","headers":[]}\n'
        b'{"progress":{"partition":0,"records":1}}\n'
        b'{"partition":0,"offset":3,"timestamp":1,"key":"old","value":"2","headers":[]}\n'
        b'{"end":{"reason":"end","records":2,"positions":{"0":9}}}\n'
    )
    page = TableFetch(topic="t", partition=0).from_http(HttpAnswer(status=200, headers={}, body=body))
    assert [(record.offset, record.key) for record in page.records] == [(8, b"new"), (3, b"old")]
    assert (page.next_offset, page.is_last) == (9, True)


def test_operations_are_equal_by_their_fields_and_immutable_and_show_no_password() -> None:
    assert Ack(group="g", lease="l") == Ack(group="g", lease="l") != Ack(group="g", lease="k")
    with pytest.raises(AttributeError):
        Ack(group="g", lease="l").lease = "k"  # pyright: ignore[reportAttributeAccessIssue]
    assert repr(AddUser(name="ada", password="secret")) == "AddUser(name='ada')"
