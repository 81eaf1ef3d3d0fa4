"""When a request may begin, and when the peer is read from."""

from __future__ import annotations

import pytest

from app.tcp.flow_control import READING_BYTES_MAX, Block, FlowControl
from app.tcp.response_queue import ResponseQueue
from tests.support.toy_listener import Limits


def make(limits: Limits | None = None) -> tuple[FlowControl, ResponseQueue]:
    responses = ResponseQueue()
    return FlowControl(limits or Limits(), responses), responses


@pytest.mark.parametrize("reason", Block)
def test_a_block_holds_the_next_request_until_it_is_lifted(reason: Block) -> None:
    flow, _ = make()
    flow.block(reason)
    flow.block(reason)
    assert flow.is_blocked_by(reason)
    assert not flow.may_begin()
    flow.unblock(reason)
    assert flow.may_begin()
    assert flow.may_read()


@pytest.mark.parametrize("reason", Block)
def test_the_peer_is_not_read_from_while_blocked_unless_its_end_or_the_next_request_matters(
    reason: Block,
) -> None:
    flow, _ = make()
    flow.block(reason)
    assert flow.may_read() == (reason in (Block.READ, Block.TURN, Block.OUTPUT))


def test_each_block_must_be_lifted_for_itself() -> None:
    flow, _ = make()
    flow.block(Block.BARRIER)
    flow.block(Block.OUTPUT)
    flow.unblock(Block.BARRIER)
    assert not flow.may_begin()
    assert flow.is_blocked_by(Block.OUTPUT)


def test_pipelined_requests_max_bounds_the_places() -> None:
    flow, responses = make(Limits(pipelined_requests_max=2))
    first = responses.reserve()
    assert flow.may_begin()
    responses.append(b"")
    assert not flow.may_begin()
    assert not flow.may_read()
    responses.fill(first, b"")
    assert flow.may_begin()


def test_output_bytes_max_bounds_the_responses_that_wait() -> None:
    flow, responses = make(Limits(output_bytes_max=10))
    first = responses.reserve()
    responses.append(b"123456789")
    assert flow.may_begin()
    responses.append(b"0")
    assert not flow.may_begin()
    responses.fill(first, b"")
    assert flow.may_begin()


def test_reads_are_bounded_by_what_they_may_return() -> None:
    flow, responses = make()
    responses.reserve()
    flow.reading_bytes += READING_BYTES_MAX - 1
    assert flow.may_begin()
    flow.reading_bytes += 1
    assert not flow.may_begin()
    assert not flow.may_read()
