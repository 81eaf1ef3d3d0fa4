"""The commonest requests of each protocol, and the cost of a check in them.

Both sides are connections to one broker in this process (``in_process``), which gets their requests in short slices in
turn (``slices``). The control has the same on both sides: its interval says what the measure can tell apart.
"""

from __future__ import annotations

import os
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import uvloop
from stele.wire import messages as m
from stele.wire.record_batch import build_values

from app.broker.broker import Broker
from app.broker.producing.produce import Acks
from app.security.tls.tls_settings import ListenerName

from .in_process import HOST, Caller, InProcess
from .kafka_frames import fetch_request, produce_request
from .slices import Slice, SlicedComparison

TOPIC, HTTP_TOPIC, FULL_TOPIC, BIG_TOPIC = "bench", "bench-http", "bench-fetch", "bench-big"
# Of an answer without an error, those that are always the same.
_HEAD_BYTES: dict[ListenerName, int] = {"kafka": 33, "binary": 10, "http": 15}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonRequest:
    """A request, and how many of them are one slice of some milliseconds."""

    what: str
    listener: ListenerName
    data: bytes
    per_slice: int
    # Requests that arrive together.
    at_once: int = 1
    # Of all pairs, those that are run: what writes much does so less often.
    share: float = 1.0


def _batch(values: int, size: int) -> bytearray:
    return build_values([b"x" * size] * values, time.time_ns() // 1_000_000)


def _http_produce() -> bytes:
    body = b'{"records": [{"value": {"order": 4711, "amount": 12.5, "note": "' + b"x" * 40 + b'"}}]}'
    head = (
        f"POST /v1/topics/{HTTP_TOPIC}/records?acks=1 HTTP/1.1\r\nHost: {HOST}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def common_requests() -> list[CommonRequest]:
    """Return what is measured."""
    small = produce_request(TOPIC, bytes(_batch(1, 100)), acks=1)
    large = produce_request(BIG_TOPIC, bytes(_batch(1, 10_000)), acks=1)
    read = f"GET /v1/topics/{FULL_TOPIC}/partitions/0/records/0 HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
    binary_fetch = m.FetchRequest(
        partitions=[m.FetchPartition(topic=FULL_TOPIC, partition=0, offset=0, max_bytes=16_384)],
        max_bytes=16_384,
    )
    return [
        CommonRequest(
            what="Kafka Produce, a record of 100 B, acks=1, 5 in flight",
            listener="kafka",
            data=small * 5,
            at_once=5,
            per_slice=250,
        ),
        CommonRequest(
            what="Kafka Produce, a record of 100 B, acks=1, one at a time",
            listener="kafka",
            data=small,
            per_slice=200,
        ),
        CommonRequest(
            what="Kafka Produce, a record of 10 KB, acks=1, 5 in flight",
            listener="kafka",
            data=large * 5,
            at_once=5,
            per_slice=150,
            share=0.5,
        ),
        CommonRequest(
            what="Kafka Fetch of 16 KB",
            listener="kafka",
            data=fetch_request(FULL_TOPIC, 0, max_wait_ms=0),
            per_slice=150,
        ),
        CommonRequest(
            what="Kafka Fetch of nothing, without a wait",
            listener="kafka",
            data=fetch_request(FULL_TOPIC, 16, max_wait_ms=0),
            per_slice=60,
        ),
        CommonRequest(
            what="binary PRODUCE, a record of 100 B, one at a time",
            listener="binary",
            data=m.ProduceRequest(topic=TOPIC, data=b"x" * 100).encode(),
            per_slice=150,
        ),
        CommonRequest(
            what="binary CONSUME of 16 records of 1 KB",
            listener="binary",
            data=m.ConsumeRequest(topic=FULL_TOPIC, offset=0, batch_size=16).encode(),
            per_slice=60,
        ),
        CommonRequest(
            what="binary FETCH of 16 KB", listener="binary", data=binary_fetch.encode(), per_slice=80
        ),
        CommonRequest(
            what="HTTP, a JSON record, acks=1", listener="http", data=_http_produce(), per_slice=60
        ),
        CommonRequest(
            what="HTTP, one record of 1 KB is read", listener="http", data=read.encode(), per_slice=15
        ),
    ]


async def prepare(broker: Broker) -> None:
    """Make the topics, and fill that of the fetches with one batch of 16 KB."""
    for topic in (TOPIC, HTTP_TOPIC, FULL_TOPIC, BIG_TOPIC):
        await broker.create_topic(topic)
    broker.produce(FULL_TOPIC, 0, _batch(16, 1_000), acks=Acks.LEADER)
    # Offsets of the HTTP topic keep one number of digits for the whole run, and so does the size of an answer.
    broker.produce(HTTP_TOPIC, 0, _batch(100_000, 1), acks=Acks.LEADER)


async def caller_of(process: InProcess, request: CommonRequest, *, checks_rules: bool = False) -> Caller:
    """Return a client that sends ``request``, and has done so once."""
    caller = process.caller(request.listener, request.data, checks_rules=checks_rules)
    await caller.learn()
    return caller


def check_alike(request: CommonRequest, *callers: Caller) -> None:
    """Fail unless all callers got the same kind of answer.

    An error would cost less, or more.
    """
    heads = {caller.transport.first[: _HEAD_BYTES[request.listener]] for caller in callers}
    if len(heads) != 1:
        raise SystemExit(f"{request.what}: the answers differ: {heads}")


def slices_of(request: CommonRequest, caller: Caller) -> Slice:
    return partial(caller.call, request.per_slice // request.at_once)


def pairs_of(request: CommonRequest, pairs: int) -> int:
    return max(10, int(pairs * request.share))


def report(
    request: CommonRequest,
    comparison: SlicedComparison,
    control: SlicedComparison,
    *,
    with_it: str,
    without: str,
    goal: float,
) -> None:
    """Print one figure: the cost of both sides, their ratio, and that of the control."""
    ours_us, theirs_us = (
        median(side) / request.per_slice * 1e6 for side in (comparison.ours, comparison.yardstick)
    )
    low, high = comparison.interval
    control_low, control_high = control.interval
    print(request.what)
    print(f"  {with_it:<22} {ours_us:>8.2f} µs of CPU")
    print(f"  {without:<22} {theirs_us:>8.2f} µs of CPU")
    print(
        f"  ratio                  {comparison.ratio:>8.3f} x  (95 %: {low:.3f} to {high:.3f}; goal ≤ {goal:g} x: "
        f"{'met' if comparison.ratio <= goal else 'NOT met'})"
    )
    print(
        f"  control, both without  {control.ratio:>8.3f} x  (95 %: {control_low:.3f} to {control_high:.3f})",
        flush=True,
    )


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run ``main`` on the event loop of ``stele serve``.

    Print the load of the machine before and after.
    """
    print(f"load average {os.getloadavg()[0]:.1f}", flush=True)
    uvloop.run(main)
    print(f"load average {os.getloadavg()[0]:.1f}")
