"""Messages for writing record batches and for idempotent producers."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from ..error_codes import ErrorCode
from ..schema import Bool, Int8, Int16, Int32, Int64
from .base import Code, Request, Response, message
from .codec import MessageError
from .frame_types import MessageType


class Durability(IntEnum):
    """The durability of a write when its response is sent (ADR-0003)."""

    NONE = 0
    APPENDED = 1
    SYNCED = 2
    REPLICATED = 3

    @property
    def label(self) -> str:
        return self.name.lower()


def _durability(number: int) -> Durability:
    try:
        return Durability(number)
    except ValueError as error:
        raise MessageError(f"durability {number} does not exist") from error


ACKS_ALL = -1
ANY_PARTITION = -1
UNKNOWN_OFFSET = -1


@message(MessageType.PRODUCE_BATCH_REQUEST)
class ProduceBatchRequest(Request):
    """Append ``batches``, one or more RecordBatch v2, stored verbatim.

    ``partition`` -1 lets the broker choose, in turn. ``acks`` is 0, 1 or -1 (all).
    Unlike in Kafka, acks=0 has a response, sent without any guarantee, so that every
    request of a pipeline has exactly one response.
    """

    topic: str
    partition: Int32
    acks: Int8
    timeout_ms: Int32 = 30_000
    batches: Annotated[bytes | bytearray, "records"]


@message(MessageType.PRODUCE_BATCH_RESPONSE)
class ProduceBatchResponse(Response):
    """The receipt.

    Offsets are -1 when acks was 0; ``log_append_time_ms`` is -1 unless the topic
    stamps records on arrival.
    """

    partition: Int32
    base_offset: Int64
    last_offset: Int64
    log_append_time_ms: Int64
    log_start_offset: Int64
    durability: Annotated[Durability, "int8", _durability]


@message(MessageType.CONDITIONAL_PRODUCE_REQUEST)
class ConditionalProduceRequest(ProduceBatchRequest):
    """Append one batch, if the log end offset of the partition is ``expected_end``.

    ``partition`` and ``acks`` are not -1 and 0 as otherwise they may be.
    """

    expected_end: Int64


@message(MessageType.CONDITIONAL_PRODUCE_RESPONSE)
class ConditionalProduceResponse(ProduceBatchResponse):
    """The receipt, or the code UNEXPECTED_END with the actual end: then nothing was stored."""

    code: Code = ErrorCode.NONE
    message: str = ""
    log_end_offset: Int64 = UNKNOWN_OFFSET


@message(MessageType.FLUSH_TOPIC_REQUEST)
class FlushTopicRequest(Request):
    """Sync everything appended to a topic before this request."""

    topic: str


@message(MessageType.FLUSH_TOPIC_RESPONSE)
class FlushTopicResponse(Response):
    """Everything appended to the topic before the request is on disk."""


# ── producer ids ──


@message(MessageType.INIT_PRODUCER_ID_REQUEST)
class InitProducerIdRequest(Request):
    """Request a producer id for idempotent produce."""


@message(MessageType.INIT_PRODUCER_ID_RESPONSE)
class InitProducerIdResponse(Response):
    producer_id: Int64
    producer_epoch: Int16


@message(MessageType.NAMED_PRODUCER_REQUEST)
class NamedProducerRequest(Request):
    """Begin or resume a version of a named producer (ADR-0015)."""

    name: str
    version: Int64


@message(MessageType.NAMED_PRODUCER_RESPONSE)
class NamedProducerResponse(Response):
    """The producer id; ``is_resumed`` if the version had begun before."""

    producer_id: Int64
    producer_epoch: Int16
    is_resumed: Bool


@message(MessageType.PRODUCER_STATE_REQUEST)
class ProducerStateRequest(Request):
    """Request the last record of a producer in a partition."""

    topic: str
    partition: Int32
    producer_id: Int64


@message(MessageType.PRODUCER_STATE_RESPONSE)
class ProducerStateResponse(Response):
    """The producer's last record in the partition; all -1 if there is none."""

    producer_epoch: Int16
    last_sequence: Int32
    last_offset: Int64
