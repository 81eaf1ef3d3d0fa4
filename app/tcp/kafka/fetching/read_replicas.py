"""Sends consumers to a broker of their rack (KIP-392).

Every broker of a cluster serves every partition. A consumer with a rack asks the broker that is shown as leader first.
If that is in another rack, it answers with the id of the broker that the partition has in the consumer's rack, and
without records. Clients accept only a broker that they are shown as a replica.
"""

from __future__ import annotations

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.fetch import PartitionData

from ..context import Context
from ..sessions.fetch_sessions import FetchedPartition


def rack_to_read_from(context: Context, rack: str) -> str | None:
    """Return the client's rack if it has a broker and this one is in another.

    None to serve the client here. A broker serves every client of its own rack, so none is sent back and forth.
    """
    is_other = bool(rack) and rack != context.broker.settings.broker_rack
    return rack if is_other and context.broker.cluster.leaders.has_rack(rack) else None


def read_elsewhere(context: Context, partition: FetchedPartition, rack: str) -> PartitionData | None:
    """Return the answer that sends a consumer to a broker of ``rack``.

    None if no broker of it is alive. An internal topic is read from its leader.
    """
    broker = context.broker
    topic = broker.readable_topic(partition.topic)
    if topic.is_internal:
        return None
    near = broker.cluster.leaders.near(topic.topic_id.bytes, partition.index, rack)
    if near is None:
        return None
    state = broker.log_state(topic.name, partition.index)
    return PartitionData(
        partition_index=partition.index,
        error_code=ErrorCode.NONE,
        high_watermark=state.high_watermark,
        last_stable_offset=state.last_stable_offset,
        log_start_offset=state.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=near,
        records=b"",
    )
