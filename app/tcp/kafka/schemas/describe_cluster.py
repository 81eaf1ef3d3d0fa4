"""DescribeCluster (api key 60): returns the cluster's id and brokers (KIP-700)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Int8, Int16, Int32, at, message

from ..api import Api


@message
class DescribeClusterRequest:
    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = at("1+", default=1)
    include_fenced_brokers: Bool = at("2+", default=False)


@message
class DescribeClusterBroker:
    broker_id: Int32
    host: str
    port: Int32
    rack: str | None = None
    is_fenced: Bool = at("2+", default=False)


@message
class DescribeClusterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None = None
    endpoint_type: Int8 = at("1+", default=1)
    cluster_id: str
    controller_id: Int32 = -1
    brokers: Sequence[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648


API = Api(
    key=60,
    name="DescribeCluster",
    versions=(0, 2),
    flexible_since=0,
    request=DescribeClusterRequest,
    response=DescribeClusterResponse,
)
