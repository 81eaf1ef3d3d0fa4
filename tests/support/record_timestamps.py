"""Timestamps that topics refuse: one table for Stele and for Apache Kafka, and how to play it."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stele.wire import record_batch as rb
from stele.wire.compression import Compression
from stele.wire.error_codes import ErrorCode

from tests.support.batches import with_new_crc
from tests.support.kafka_peer import KafkaPeer, create_topic, only_partition, produce

HOUR_MS = 3_600_000
# Apache Kafka, for a moment after a topic is made.
NOT_LEADER = 6
PAST = {"message_timestamp_before_max_ms": str(HOUR_MS)}
STAMPING = {"message_timestamp_type": "LogAppendTime"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A batch with a record for each of ``ages_ms`` (None: no timestamp), and the records that are refused."""

    ages_ms: Sequence[int | None]
    refused: Sequence[int] = ()
    configs: Mapping[str, str] = field(default_factory=dict[str, str])
    codec: Compression = Compression.NONE
    claims_log_append_time: bool = False
    # What the header claims to be the newest, if not the truth.
    claimed_age_ms: int | None = None


CASES = {
    "now": Case(ages_ms=[0]),
    "almost an hour ahead": Case(ages_ms=[-HOUR_MS + 60_000]),
    "more than an hour ahead": Case(ages_ms=[-HOUR_MS - 60_000], refused=[0]),
    "some ahead": Case(ages_ms=[0, -2 * HOUR_MS, 0, -3 * HOUR_MS], refused=[1, 3]),
    "some ahead, compressed": Case(ages_ms=[0, -2 * HOUR_MS], refused=[1], codec=Compression.GZIP),
    "none": Case(ages_ms=[None]),
    "none and now": Case(ages_ms=[None, 0]),
    "years ago": Case(ages_ms=[20 * 365 * 24 * HOUR_MS]),
    "years ago where the past is bounded": Case(ages_ms=[20 * 365 * 24 * HOUR_MS], refused=[0], configs=PAST),
    "some old where the past is bounded": Case(
        ages_ms=[0, 2 * HOUR_MS, 60_000, 3 * HOUR_MS], refused=[1, 3], configs=PAST
    ),
    "fine where the past is bounded": Case(ages_ms=[0, HOUR_MS - 60_000], configs=PAST),
    "none where the past is bounded": Case(ages_ms=[None], configs=PAST),
    "ahead where the broker stamps": Case(ages_ms=[-9 * HOUR_MS], configs=STAMPING),
    "stamped by the producer": Case(
        ages_ms=[0, 0], refused=[0, 1], configs=STAMPING, claims_log_append_time=True
    ),
    "stamped by the producer where the broker does not": Case(ages_ms=[0, 0], claims_log_append_time=True),
    "a header that claims to be ahead": Case(ages_ms=[0, 0], claimed_age_ms=-9 * HOUR_MS),
    "ahead where batches are compressed": Case(
        ages_ms=[0, -2 * HOUR_MS], refused=[1], configs={"compression_type": "zstd"}
    ),
}


def batch_of_case(case: Case) -> bytes:
    now_ms = int(time.time() * 1000)
    builder = rb.BatchBuilder(compression=case.codec)
    for age_ms in case.ages_ms:
        builder.append(timestamp_ms=-1 if age_ms is None else now_ms - age_ms, value=b"x")
    batch = builder.build()
    if case.claims_log_append_time:
        struct.pack_into(">h", batch, 21, 0x08)
    if case.claimed_age_ms is not None:
        struct.pack_into(">q", batch, 35, now_ms - case.claimed_age_ms)
    return with_new_crc(bytes(batch))


def play(
    peer: KafkaPeer, name: str, version: int = 12, *, topic: str = ""
) -> tuple[int, list[int], str | None]:
    """Error code, the records that are named, and the message."""
    case = CASES[name]
    topic = topic or name.replace(" ", "-").replace(",", "")
    create_topic(peer, topic, 1, **case.configs)
    while True:
        done = only_partition(peer.call(produce(topic, batch_of_case(case)), version))
        # Apache Kafka may not know a topic yet right after it created it.
        if done.error_code not in (NOT_LEADER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            break
    return done.error_code, [refused.batch_index for refused in done.record_errors], done.error_message


def expected(name: str) -> tuple[ErrorCode, list[int]]:
    refused = list(CASES[name].refused)
    return ErrorCode.INVALID_TIMESTAMP if refused else ErrorCode.NONE, refused
