"""Keys in compacted topics: one table for Stele and for Apache Kafka, and how to play it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stele.wire import record_batch as rb
from stele.wire.compression import Compression
from stele.wire.error_codes import ErrorCode

from tests.support.kafka_peer import KafkaPeer, create_topic, only_partition, produce

HOUR_MS = 3_600_000
# Apache Kafka, for a moment after a topic is created.
NOT_READY = (3, 6)
COMPACTED = {"cleanup_policy": "compact"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A batch with a record for each key, and the records that are refused for theirs."""

    keys: Sequence[bytes | None]
    refused: Sequence[int] = ()
    configs: Mapping[str, str] = field(default_factory=lambda: dict(COMPACTED))
    codec: Compression = Compression.NONE
    value: bytes | None = b"x"
    ahead_ms: int = 0


MANY = [b"k"] * 700 + [None] + [b"k"] * 300
CASES = {
    "every record has a key": Case(keys=[b"a", b"b"]),
    "an empty key is a key": Case(keys=[b""]),
    "a tombstone": Case(keys=[b"a"], value=None),
    "neither key nor value": Case(keys=[None], value=None, refused=[0]),
    "one of three": Case(keys=[b"a", None, b"c"], refused=[1]),
    "none has one": Case(keys=[None, None], refused=[0, 1]),
    "compact and delete": Case(keys=[None], refused=[0], configs={"cleanup_policy": "compact,delete"}),
    "delete alone": Case(keys=[None], configs={"cleanup_policy": "delete"}),
    "no policy": Case(keys=[None], configs={"cleanup_policy": ""}),
    "gzip": Case(keys=[b"a", None], refused=[1], codec=Compression.GZIP),
    "snappy": Case(keys=[b"a", None], refused=[1], codec=Compression.SNAPPY),
    "lz4": Case(keys=[b"a", None], refused=[1], codec=Compression.LZ4),
    "zstd": Case(keys=[b"a", None], refused=[1], codec=Compression.ZSTD),
    "zstd with keys": Case(keys=[b"a", b"b"], codec=Compression.ZSTD),
    "a thousand": Case(keys=MANY, refused=[700]),
    "a thousand in lz4": Case(keys=MANY, refused=[700], codec=Compression.LZ4),
    "large values": Case(keys=[b"a", None], refused=[1], value=b"v" * 100_000),
    "recompressed": Case(keys=[None, b"b"], refused=[0], configs={**COMPACTED, "compression_type": "zstd"}),
    "stamped by the broker": Case(
        keys=[b"a", None], refused=[1], configs={**COMPACTED, "message_timestamp_type": "LogAppendTime"}
    ),
    "no key and too far ahead": Case(keys=[None], refused=[0], ahead_ms=2 * HOUR_MS),
}


class Answer(NamedTuple):
    code: int
    named: list[int]
    reasons: list[str]
    message: str | None


def batch_of_case(case: Case) -> bytearray:
    builder = rb.BatchBuilder(compression=case.codec)
    for key in case.keys:
        builder.append(timestamp_ms=int(time.time() * 1000) + case.ahead_ms, key=key, value=case.value)
    return builder.build()


def play(peer: KafkaPeer, name: str, version: int = 12, *, topic: str = "") -> Answer:
    """Produce the batch of a case to a topic of its own."""
    case = CASES[name]
    topic = topic or topic_of(name)
    create_topic(peer, topic, 1, **case.configs)
    while True:
        done = only_partition(peer.call(produce(topic, batch_of_case(case)), version))
        if done.error_code not in NOT_READY:
            break
    return Answer(
        done.error_code,
        [record.batch_index for record in done.record_errors],
        [record.batch_index_error_message for record in done.record_errors],
        done.error_message,
    )


def topic_of(name: str) -> str:
    return f"keys-{name.replace(' ', '-')}"


def reason_in(topic: str, partition: int = 0) -> str:
    """Kafka's words for each record that is refused."""
    return f"Compacted topic cannot accept message without key in topic partition {topic}-{partition}"


def expected(name: str) -> tuple[ErrorCode, list[int]]:
    case = CASES[name]
    return ErrorCode.INVALID_RECORD if case.refused else ErrorCode.NONE, list(case.refused)
