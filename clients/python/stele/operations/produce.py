"""Operations that store records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from ..errors import ProtocolError, SteleClientError, error_for
from ..records import OutgoingRecord, RecordMetadata
from ..wire import messages as m
from ..wire.compression import Compression
from ..wire.record_batch import NO_PRODUCER_ID, BatchBuilder
from .base import HttpAnswer, HttpRequest, Operation, error_from_problem, expect, topic_path
from .json_records import FROM_BYTES, NDJSON, encode_ndjson

RecordOutcome = RecordMetadata | SteleClientError
Acks = int
ACKS_LABELS: dict[int, str] = {0: "0", 1: "1", m.ACKS_ALL: "all"}
_DURABILITIES = {durability.label: durability for durability in m.Durability}
# The least durability of a response that started before the broker knew.
_LEAST_BY_ACKS = {
    0: m.Durability.NONE,
    1: m.Durability.APPENDED,
    m.ACKS_ALL: m.Durability.SYNCED,
}


class Produce(Operation[list[RecordOutcome]]):
    """Store a batch; the result has a receipt or an error per record, in order.

    ``partition`` None lets the broker choose: over the binary protocol one partition
    for the batch, in turn; over HTTP one per record, by key. With a producer id the
    partition is required, because sequences are per partition. ``timeout_ms`` is how
    long the broker may wait for acks=all; over HTTP the broker's setting applies. With ``expected_end`` it is a
    conditional append: a partition that ends elsewhere is an UnexpectedEndError.
    """

    topic: str
    partition: int | None
    records: Sequence[OutgoingRecord]
    acks: Acks = m.ACKS_ALL
    timeout_ms: int = 30_000
    compression: Compression = Compression.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = -1
    base_sequence: int = -1
    expected_end: int | None = None

    def to_frame(self) -> m.Request:
        builder = BatchBuilder(
            compression=self.compression,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
        )
        append = builder.append
        for record in self.records:
            append(timestamp_ms=record.timestamp, value=record.value, key=record.key, headers=record.headers)
        partition = m.ANY_PARTITION if self.partition is None else self.partition
        if self.expected_end is not None:
            return m.ConditionalProduceRequest(
                topic=self.topic,
                partition=partition,
                acks=self.acks,
                timeout_ms=self.timeout_ms,
                batches=builder.build(),
                expected_end=self.expected_end,
            )
        return m.ProduceBatchRequest(
            topic=self.topic,
            partition=partition,
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            batches=builder.build(),
        )

    def from_frame(self, response: m.Response) -> list[RecordOutcome]:
        answer = expect(response, m.ProduceBatchResponse)
        if isinstance(answer, m.ConditionalProduceResponse) and answer.code:
            raise error_for(answer.code, answer.message, log_end_offset=answer.log_end_offset)
        topic, partition, durability = self.topic, answer.partition, answer.durability
        stamp, offset = answer.log_append_time_ms, answer.base_offset
        if offset < 0:
            return [RecordMetadata(topic, partition, -1, r.timestamp, durability) for r in self.records]
        return [
            RecordMetadata(
                topic, partition, offset + index, record.timestamp if stamp < 0 else stamp, durability
            )
            for index, record in enumerate(self.records)
        ]

    def to_http(self) -> HttpRequest:
        params = {"acks": ACKS_LABELS[self.acks], **FROM_BYTES}
        headers = {"Content-Type": NDJSON}
        if self.partition is not None:
            params["partition"] = str(self.partition)
        if self.expected_end is not None:
            headers["If-Match"] = f'"{self.expected_end}"'
        if self.producer_id != NO_PRODUCER_ID:
            headers["Producer-Id"] = str(self.producer_id)
            headers["Producer-Epoch"] = str(self.producer_epoch)
            headers["Producer-Sequence"] = str(self.base_sequence)
        return HttpRequest(
            method="POST",
            path=topic_path(self.topic, "records"),
            params=params,
            headers=headers,
            content=encode_ndjson(self.records),
        )

    def from_http(self, answer: HttpAnswer) -> list[RecordOutcome]:
        durability = _DURABILITIES.get(answer.headers.get("durability", ""), _LEAST_BY_ACKS[self.acks])
        outcomes: list[RecordOutcome] = []
        for line in cast("list[dict[str, Any]]", answer.json_lines()):
            error = line.get("error")
            if error is None:
                outcomes.append(
                    RecordMetadata(
                        self.topic, line["partition"], line["offset"], line["timestamp"], durability
                    )
                )
            elif "index" in line:
                outcomes.append(error_from_problem(error, status=error["status"]))
            else:
                # The upload ended here; the following records were not accepted.
                failure = error_from_problem(error, status=error["status"])
                outcomes += [failure.twin() for _ in range(len(self.records) - len(outcomes))]
        if len(outcomes) != len(self.records):
            raise ProtocolError(
                f"{len(self.records)} records were sent and {len(outcomes)} were answered for"
            )
        return outcomes


class InitProducerId(m.InitProducerIdRequest, Operation[tuple[int, int]]):
    """A producer id and epoch of one's own; asking again just gives another."""

    is_repeatable = True

    def from_frame(self, response: m.Response) -> tuple[int, int]:
        answer = expect(response, m.InitProducerIdResponse)
        return answer.producer_id, answer.producer_epoch

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="POST", path="/v1/producers")

    def from_http(self, answer: HttpAnswer) -> tuple[int, int]:
        document = answer.json()
        return int(document["producer_id"]), int(document["producer_epoch"])


class BeginProducerVersion(m.NamedProducerRequest, Operation[m.NamedProducerResponse]):
    """Begin a version of a named producer, or resume it (ADR-0015).

    If it ``is_resumed``, some of the version may be stored. The broker rejects a version older
    than one that has begun (InvalidRequestError).
    """

    is_repeatable = True

    def from_frame(self, response: m.Response) -> m.NamedProducerResponse:
        return expect(response, m.NamedProducerResponse)

    def to_http(self) -> HttpRequest:
        params = {"name": self.name, "version": str(self.version)}
        return HttpRequest(method="POST", path="/v1/producers", params=params)

    def from_http(self, answer: HttpAnswer) -> m.NamedProducerResponse:
        return msgspec.convert(answer.json(), m.NamedProducerResponse)


class GetProducerState(m.ProducerStateRequest, Operation[m.ProducerStateResponse]):
    """Get the last record of a producer in a partition; all -1 if there is none."""

    is_repeatable = True

    def from_frame(self, response: m.Response) -> m.ProducerStateResponse:
        return expect(response, m.ProducerStateResponse)

    def to_http(self) -> HttpRequest:
        path = topic_path(self.topic, "partitions", str(self.partition), "producers", str(self.producer_id))
        return HttpRequest(method="GET", path=path)

    def from_http(self, answer: HttpAnswer) -> m.ProducerStateResponse:
        return msgspec.convert(answer.json(), m.ProducerStateResponse)


class SimpleProduce(m.ProduceRequest, Operation[int]):
    """Store a record in partition 0 with acks=1 (PRODUCE of ADR-0009); return its offset."""

    def from_frame(self, response: m.Response) -> int:
        return expect(response, m.ProduceResponse).offset
