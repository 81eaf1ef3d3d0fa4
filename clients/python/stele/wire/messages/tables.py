"""Messages for reading compacted topics by key, and as tables (ADR-0010)."""

from __future__ import annotations

from ..schema import Bool, Int32, Int64
from .base import Batches, Request, Response, message
from .frame_types import MessageType

# Look for a key in all partitions.
ALL_PARTITIONS = -1
# The first page of a table chooses its end: the high watermark.
CURRENT_END = -1


@message(MessageType.LOOK_UP_KEY_REQUEST)
class LookUpKeyRequest(Request):
    """Look up the newest record of a key in one partition, or in all."""

    topic: str
    partition: Int32 = ALL_PARTITIONS
    key: bytes


@message(MessageType.LOOK_UP_KEY_RESPONSE)
class LookUpKeyResponse(Response):
    """The partition and one batch with the record alone; -1 and no batch if no record has the key."""

    partition: Int32
    batches: Batches = b""


@message(MessageType.TABLE_FETCH_REQUEST)
class TableFetchRequest(Request):
    """Read a page of the table of a partition: the newest record per key before ``end_offset``.

    The first page has ``offset`` 0 and ``end_offset`` -1; the others have what the page
    before returned. Tombstones are left out unless they are requested.
    """

    topic: str
    partition: Int32
    offset: Int64 = 0
    end_offset: Int64 = CURRENT_END
    max_bytes: Int32 = 1024 * 1024
    with_tombstones: Bool = False


@message(MessageType.TABLE_FETCH_RESPONSE)
class TableFetchResponse(Response):
    """A page of a table; the first batch may start before the requested offset.

    After the last page, the records applied in order are the table at ``next_offset``.
    """

    next_offset: Int64
    end_offset: Int64
    is_last: Bool
    batches: Batches = b""
