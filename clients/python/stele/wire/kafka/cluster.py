"""Brokers, replicas and directories of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import NO_UUID, Bool, Int8, Int16, Int32, Int64, UInt16, Uuid, at, message
from .api import Api

# ── ElectLeaders (api key 43): elects the leaders of partitions.
#
# The leader is the preferred replica, or any that lives.


@message
class TopicPartitions:
    topic: str
    partitions: Sequence[Int32]


@message
class ElectLeadersRequest:
    election_type: Int8 = at("1+", default=0)
    topic_partitions: Sequence[TopicPartitions] | None
    timeout_ms: Int32 = 60000


@message
class PartitionResult:
    partition_id: Int32
    error_code: Int16
    error_message: str | None


@message
class ReplicaElectionResult:
    topic: str
    partition_result: Sequence[PartitionResult]


@message
class ElectLeadersResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = at("1+", default=0)
    replica_election_results: Sequence[ReplicaElectionResult]


ELECT_LEADERS_API = Api(
    key=43,
    name="ElectLeaders",
    versions=(0, 2),
    flexible_since=2,
    request=ElectLeadersRequest,
    response=ElectLeadersResponse,
)


# ── AlterPartitionReassignments (api key 45): moves partitions between brokers.
#
# It also cancels moves (KIP-455).


@message
class ReassignablePartition:
    partition_index: Int32
    replicas: Sequence[Int32] | None = None


@message
class ReassignableTopic:
    name: str
    partitions: Sequence[ReassignablePartition]


@message
class AlterPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = at("1+", default=True)
    topics: Sequence[ReassignableTopic]


@message
class ReassignablePartitionResponse:
    partition_index: Int32
    error_code: Int16
    error_message: str | None


@message
class ReassignableTopicResponse:
    name: str
    partitions: Sequence[ReassignablePartitionResponse]


@message
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = at("1+", default=True)
    error_code: Int16
    error_message: str | None
    responses: Sequence[ReassignableTopicResponse]


ALTER_PARTITION_REASSIGNMENTS_API = Api(
    key=45,
    name="AlterPartitionReassignments",
    versions=(0, 1),
    flexible_since=0,
    request=AlterPartitionReassignmentsRequest,
    response=AlterPartitionReassignmentsResponse,
)


# ── ListPartitionReassignments (api key 46): lists moving partitions (KIP-455).
#
# They move between brokers.


@message
class ListPartitionReassignmentsTopics:
    name: str
    partition_indexes: Sequence[Int32]


@message
class ListPartitionReassignmentsRequest:
    timeout_ms: Int32 = 60000
    topics: Sequence[ListPartitionReassignmentsTopics] | None = None


@message
class OngoingPartitionReassignment:
    partition_index: Int32
    replicas: Sequence[Int32]
    adding_replicas: Sequence[Int32]
    removing_replicas: Sequence[Int32]


@message
class OngoingTopicReassignment:
    name: str
    partitions: Sequence[OngoingPartitionReassignment]


@message
class ListPartitionReassignmentsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    topics: Sequence[OngoingTopicReassignment]


LIST_PARTITION_REASSIGNMENTS_API = Api(
    key=46,
    name="ListPartitionReassignments",
    versions=(0, 0),
    flexible_since=0,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
)


# ── DescribeQuorum (api key 55): describes the quorum of controllers (KIP-595).


@message
class PartitionData:
    partition_index: Int32


@message
class TopicData:
    topic_name: str
    partitions: Sequence[PartitionData]


@message
class DescribeQuorumRequest:
    topics: Sequence[TopicData]


@message
class ReplicaState:
    replica_id: Int32
    replica_directory_id: Uuid = at("2+", default=NO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = at("1+", default=-1)
    last_caught_up_timestamp: Int64 = at("1+", default=-1)


@message
class PartitionQuorum:
    partition_index: Int32
    error_code: Int16
    error_message: str | None = at("2+", default="")
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: Sequence[ReplicaState]
    observers: Sequence[ReplicaState]


@message
class TopicQuorum:
    topic_name: str
    partitions: Sequence[PartitionQuorum]


@message
class Listener:
    name: str = at("2+", default="")
    host: str = at("2+", default="")
    port: UInt16 = at("2+", default=0)


@message
class Node:
    node_id: Int32 = at("2+", default=0)
    listeners: Sequence[Listener] = at("2+", default=())


@message
class DescribeQuorumResponse:
    error_code: Int16
    error_message: str | None = at("2+", default="")
    topics: Sequence[TopicQuorum]
    nodes: Sequence[Node] = at("2+", default=())


DESCRIBE_QUORUM_API = Api(
    key=55,
    name="DescribeQuorum",
    versions=(0, 2),
    flexible_since=0,
    request=DescribeQuorumRequest,
    response=DescribeQuorumResponse,
)


# ── UpdateFeatures (api key 57): turns features of the cluster on and off (KIP-584).


@message
class FeatureUpdateKey:
    feature: str
    max_version_level: Int16
    allow_downgrade: Bool = at("0", default=False)
    upgrade_type: Int8 = at("1+", default=1)


@message
class UpdateFeaturesRequest:
    timeout_ms: Int32 = 60000
    feature_updates: Sequence[FeatureUpdateKey]
    validate_only: Bool = at("1+", default=False)


@message
class UpdatableFeatureResult:
    feature: str
    error_code: Int16
    error_message: str | None


@message
class UpdateFeaturesResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    results: Sequence[UpdatableFeatureResult] = at("0-1", default=())


UPDATE_FEATURES_API = Api(
    key=57,
    name="UpdateFeatures",
    versions=(0, 2),
    flexible_since=0,
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
)


# ── UnregisterBroker (api key 64): removes a broker that is gone for good (KIP-500).


@message
class UnregisterBrokerRequest:
    broker_id: Int32


@message
class UnregisterBrokerResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None


UNREGISTER_BROKER_API = Api(
    key=64,
    name="UnregisterBroker",
    versions=(0, 0),
    flexible_since=0,
    request=UnregisterBrokerRequest,
    response=UnregisterBrokerResponse,
)


# ── AddRaftVoter (api key 80): adds a controller to the quorum (KIP-853).


@message
class AddRaftVoterListener:
    name: str
    host: str
    port: UInt16


@message
class AddRaftVoterRequest:
    cluster_id: str | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Sequence[AddRaftVoterListener]
    ack_when_committed: Bool = at("1+", default=True)


@message
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None


ADD_RAFT_VOTER_API = Api(
    key=80,
    name="AddRaftVoter",
    versions=(0, 1),
    flexible_since=0,
    request=AddRaftVoterRequest,
    response=AddRaftVoterResponse,
)


# ── RemoveRaftVoter (api key 81): removes a controller from the quorum (KIP-853).


@message
class RemoveRaftVoterRequest:
    cluster_id: str | None
    voter_id: Int32
    voter_directory_id: Uuid


@message
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None


REMOVE_RAFT_VOTER_API = Api(
    key=81,
    name="RemoveRaftVoter",
    versions=(0, 0),
    flexible_since=0,
    request=RemoveRaftVoterRequest,
    response=RemoveRaftVoterResponse,
)


# ── DescribeLogDirs (api key 35): returns the sizes of partitions on disk.


@message
class DescribableLogDirTopic:
    topic: str
    partitions: Sequence[Int32]


@message
class DescribeLogDirsRequest:
    topics: Sequence[DescribableLogDirTopic] | None


@message
class DescribeLogDirsPartition:
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


@message
class DescribeLogDirsTopic:
    name: str
    partitions: Sequence[DescribeLogDirsPartition]


@message
class DescribeLogDirsResult:
    error_code: Int16
    log_dir: str
    topics: Sequence[DescribeLogDirsTopic]
    total_bytes: Int64 = at("4+", default=-1)
    usable_bytes: Int64 = at("4+", default=-1)
    is_cordoned: Bool = at("5+", default=False)


@message
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16 = at("3+", default=0)
    results: Sequence[DescribeLogDirsResult]


DESCRIBE_LOG_DIRS_API = Api(
    key=35,
    name="DescribeLogDirs",
    versions=(1, 5),
    flexible_since=2,
    request=DescribeLogDirsRequest,
    response=DescribeLogDirsResponse,
)


# ── AlterReplicaLogDirs (api key 34): moves replicas between data directories.
#
# The directories are of one broker.


@message
class AlterReplicaLogDirTopic:
    name: str
    partitions: Sequence[Int32]


@message
class AlterReplicaLogDir:
    path: str
    topics: Sequence[AlterReplicaLogDirTopic]


@message
class AlterReplicaLogDirsRequest:
    dirs: Sequence[AlterReplicaLogDir]


@message
class AlterReplicaLogDirPartitionResult:
    partition_index: Int32
    error_code: Int16


@message
class AlterReplicaLogDirTopicResult:
    topic_name: str
    partitions: Sequence[AlterReplicaLogDirPartitionResult]


@message
class AlterReplicaLogDirsResponse:
    throttle_time_ms: Int32 = 0
    results: Sequence[AlterReplicaLogDirTopicResult]


ALTER_REPLICA_LOG_DIRS_API = Api(
    key=34,
    name="AlterReplicaLogDirs",
    versions=(1, 2),
    flexible_since=2,
    request=AlterReplicaLogDirsRequest,
    response=AlterReplicaLogDirsResponse,
)
