"""WriteTxnMarkers (api key 27): ends transactions in partitions.

Administrators abort hanging ones (KIP-664).
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int8, Int16, Int32, Int64, at, message

from ..api import Api


@message
class WritableTxnMarkerTopic:
    name: str
    partition_indexes: Sequence[Int32]


@message
class WritableTxnMarker:
    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: Sequence[WritableTxnMarkerTopic]
    coordinator_epoch: Int32
    transaction_version: Int8 = at("2+", default=0)


@message
class WriteTxnMarkersRequest:
    markers: Sequence[WritableTxnMarker]


@message
class WritableTxnMarkerPartitionResult:
    partition_index: Int32
    error_code: Int16


@message
class WritableTxnMarkerTopicResult:
    name: str
    partitions: Sequence[WritableTxnMarkerPartitionResult]


@message
class WritableTxnMarkerResult:
    producer_id: Int64
    topics: Sequence[WritableTxnMarkerTopicResult]


@message
class WriteTxnMarkersResponse:
    markers: Sequence[WritableTxnMarkerResult]


API = Api(
    key=27,
    name="WriteTxnMarkers",
    versions=(1, 2),
    flexible_since=1,
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
)
