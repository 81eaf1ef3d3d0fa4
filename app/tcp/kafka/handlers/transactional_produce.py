"""What a produce request says of a transaction, and what refuses the request."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.produce import ProduceRequest

from ....storage.transactional_produce import TransactionalProduce

_FIRST_WITH_ABORTABLE = 11
_FIRST_THAT_ADDS_PARTITIONS = 12
# In the header of a batch: magic, the low byte of its attributes, and the producer's id and epoch.
_MAGIC_POSITION = 16
_MAGIC_V2 = 2
_ATTRIBUTES_POSITION = 22
_TRANSACTIONAL = 0x10
_PRODUCER_POSITION = 43
_PRODUCER = struct.Struct(">qh")
_PRODUCER_END = _PRODUCER_POSITION + _PRODUCER.size


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing of a request is appended."""

    code: ErrorCode
    message: str


def transaction_of(request: ProduceRequest, version: int) -> TransactionalProduce | None:
    """Return the request's transaction, as its version understands it (KIP-890)."""
    if request.transactional_id is None:
        return None
    return TransactionalProduce(
        transactional_id=request.transactional_id,
        adds_partitions=version >= _FIRST_THAT_ADDS_PARTITIONS,
        is_abortable_known=version >= _FIRST_WITH_ABORTABLE,
    )


def refusal_of(request: ProduceRequest) -> Refusal | None:
    """Refuse transactional batches without an id, or of several producers.

    Only the first batch of a partition is looked at: the broker refuses further ones of a producer.
    """
    is_named = request.transactional_id is not None
    producer: tuple[int, int] | None = None
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                records is None
                or len(records) < _PRODUCER_END
                or not records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL
                or records[_MAGIC_POSITION] != _MAGIC_V2
            ):
                continue
            if not is_named:
                return Refusal(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "the batches are transactional, but the request has no transactional id",
                )
            found = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
            if producer is not None and found != producer:
                return Refusal(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    "the transactional batches of a request must have one producer id and epoch",
                )
            producer = found
    return None
