"""Compare compiled codecs of the binary protocol with codecs written by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stele.wire import messages as m
from stele.wire.messages.base import Response
from stele.wire.messages.codec import body_reader, frame_writer
from stele.wire.schema import Int64, frozen_message

from .measure import in_turn, report

ANSWERS = 1_000
MESSAGES = [(offset, b"x" * 100) for offset in range(1_000)]
# Calls in one round: enough to be measured, few enough to be repeated.
CALLS = 200


@frozen_message
class DeclaredConsumeResponse(Response):
    """CONSUME_RESPONSE with the length of a message after its offset: what a declaration can say."""

    next_offset: Int64
    messages: Sequence[tuple[Int64, bytes]]


def rate(call: Callable[[], object], *, units: int) -> float:
    """Units per second over ``CALLS`` calls."""
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return CALLS * units / (time.perf_counter() - start)


def compare(what: str, by_hand: Callable[[], object], compiled: Callable[[], object], *, goal: float) -> None:
    comparison = in_turn(
        lambda: rate(by_hand, units=len(MESSAGES)), lambda: rate(compiled, units=len(MESSAGES)), rounds=25
    )
    report(what, comparison, unit="messages/s", yardstick="compiled from a declaration", goal=goal)


def main() -> None:
    compare(
        f"{ANSWERS:,} PRODUCE answers in a row",
        lambda: m.encode_produce_responses(0, ANSWERS),
        lambda: b"".join([m.ProduceResponse(offset=offset).encode() for offset in range(ANSWERS)]),
        goal=3,
    )
    consumed = m.ConsumeResponse(next_offset=1_000, messages=MESSAGES)
    declared = DeclaredConsumeResponse(next_offset=1_000, messages=MESSAGES)
    write = frame_writer(DeclaredConsumeResponse, m.MessageType.CONSUME_RESPONSE, 1)
    compare(
        "encoding CONSUME_RESPONSE, messages of 100 bytes", consumed.encode, lambda: write(declared), goal=0.7
    )
    body, declared_body = consumed.encode()[5:], write(declared)[5:]
    read = body_reader(DeclaredConsumeResponse)
    compare(
        "decoding CONSUME_RESPONSE, messages of 100 bytes",
        lambda: m.decode_response(m.MessageType.CONSUME_RESPONSE, body),
        lambda: read(declared_body, 1),
        goal=0.7,
    )


if __name__ == "__main__":
    main()
