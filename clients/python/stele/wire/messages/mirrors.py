"""Messages of mirrors, which copy topics with the offsets that they have elsewhere."""

from __future__ import annotations

from typing import Annotated

from ..schema import Int32, Int64, Uuid
from .base import Request, Response, message
from .frame_types import MessageType

# So many small batches take a broker a few milliseconds.
BATCHES_PER_APPEND_MAX = 500


@message(MessageType.MIRROR_APPEND_REQUEST)
class MirrorAppendRequest(Request):
    """Append ``batches`` as they are to a copy that ends at ``expected_end``; needs CLUSTER_ACTION.

    ``batches`` are at most ``BATCHES_PER_APPEND_MAX`` RecordBatch v2, or none. ``log_start_offset`` is that of the source,
    and the end of the copy moves with it; -1 leaves it. If nothing is to change, ``expected_end`` does not matter.
    """

    topic: str
    topic_id: Uuid
    partition: Int32
    expected_end: Int64
    log_start_offset: Int64
    batches: Annotated[bytes | bytearray, "records"]


@message(MessageType.MIRROR_APPEND_RESPONSE)
class MirrorAppendResponse(Response):
    """What the copy has now; ``leader_epoch`` is that of its last batch, -1 if there is none."""

    log_start_offset: Int64
    log_end_offset: Int64
    leader_epoch: Int32
