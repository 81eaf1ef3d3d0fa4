"""Messages for reading record batches and looking up offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ..error_codes import ErrorCode
from ..isolation_level import IsolationLevel
from ..schema import Int8, Int32, Int64, Label, Uuid, frozen_message
from .base import Batches, Code, Request, Response, message
from .frame_types import MessageType
from .produce import UNKNOWN_OFFSET

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2


@frozen_message
class FetchPartition:
    topic: str
    partition: Int32
    offset: Int64
    max_bytes: Annotated[Int32, Label("partition max bytes")] = 1024 * 1024


@message(MessageType.FETCH_REQUEST)
class FetchRequest(Request):
    """Read whole batches from several partitions.

    Answered once ``min_bytes`` are available or ``max_wait_ms`` has passed, or at once on
    an error. The first batch is returned even if it is larger than ``max_bytes``, and
    may start before ``offset``. The isolation level is READ_COMMITTED.
    """

    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 1
    max_bytes: Int32 = 8 * 1024 * 1024
    partitions: Sequence[FetchPartition]


@frozen_message
class FetchedPartition:
    """The batches of a partition, or an error ``code`` with its ``message``.

    The code is 0 without an error.

    ``high_watermark`` is the end of what the isolation level lets the request read: the last
    stable offset with READ_COMMITTED. Batches without records stand for those that it hides.
    """

    topic: str
    partition: Int32
    code: Code = ErrorCode.NONE
    message: str = ""
    high_watermark: Int64 = UNKNOWN_OFFSET
    log_start_offset: Int64 = UNKNOWN_OFFSET
    batches: Batches = b""


@message(MessageType.FETCH_RESPONSE)
class FetchResponse(Response):
    """The partitions in the order requested."""

    partitions: Sequence[FetchedPartition]


@message(MessageType.LIST_OFFSETS_REQUEST)
class ListOffsetsRequest(Request):
    """Look up an offset; ``timestamp_ms`` is ms since the epoch, -1 latest or -2 earliest.

    The isolation level is READ_COMMITTED: latest is the last stable offset.
    """

    topic: str
    partition: Int32
    timestamp_ms: Int64


@message(MessageType.LIST_OFFSETS_RESPONSE)
class ListOffsetsResponse(Response):
    """The offset; for a time that of the first record at or after it, or -1."""

    offset: Int64
    timestamp_ms: Int64
    leader_epoch: Int32


# ── with another isolation level ──


@message(MessageType.ISOLATED_FETCH_REQUEST)
class IsolatedFetchRequest(FetchRequest):
    """A fetch with a chosen isolation level, a number of ``IsolationLevel``."""

    isolation: Int8 = IsolationLevel.READ_UNCOMMITTED


@message(MessageType.ISOLATED_FETCH_RESPONSE)
class IsolatedFetchResponse(FetchResponse):
    """As the response to a fetch."""


@frozen_message
class TopicIdentity:
    topic: str
    topic_id: Uuid


@message(MessageType.TOPIC_FETCH_REQUEST)
class TopicFetchRequest(IsolatedFetchRequest):
    """A fetch from topics with these ids only, not from others that were created under their names since."""

    topic_ids: Sequence[TopicIdentity]


@message(MessageType.TOPIC_FETCH_RESPONSE)
class TopicFetchResponse(FetchResponse):
    """As the response to a fetch."""


@message(MessageType.ISOLATED_LIST_OFFSETS_REQUEST)
class IsolatedListOffsetsRequest(ListOffsetsRequest):
    """A look-up of an offset with a chosen isolation level."""

    isolation: Int8 = IsolationLevel.READ_UNCOMMITTED


@message(MessageType.ISOLATED_LIST_OFFSETS_RESPONSE)
class IsolatedListOffsetsResponse(ListOffsetsResponse):
    """As the response to a look-up."""
