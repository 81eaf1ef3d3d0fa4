"""What administrators' tools ask of a cluster, answered by one broker: a table, held against Apache Kafka.

``ANSWERS`` is what Apache Kafka 4.3 says with a single broker, no authorizer, and the group protocols of
KIP-848, KIP-932 and KIP-1071 turned off. The same table is asked of Stele in every run, and of a running
Apache Kafka by the test marked ``long``, so that it cannot drift.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from confluent_kafka import Consumer
from stele.broker_process import BrokerProcess, run_broker
from stele.wire.error_codes import ErrorCode as E
from stele.wire.kafka.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from stele.wire.kafka.cluster import (
    AddRaftVoterListener,
    AddRaftVoterRequest,
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    FeatureUpdateKey,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    PartitionData,
    ReassignablePartition,
    ReassignableTopic,
    RemoveRaftVoterRequest,
    TopicData,
    TopicPartitions,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)
from stele.wire.kafka.committed_offsets import OffsetFetchRequest
from stele.wire.kafka.configs import ListConfigResourcesRequest, ListConfigResourcesResponse
from stele.wire.kafka.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
)
from stele.wire.kafka.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from stele.wire.kafka.quotas import (
    AlterClientQuotasEntry,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
)
from stele.wire.kafka.security import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from stele.wire.kafka.streams_groups import StreamsGroupDescribeRequest, StreamsGroupHeartbeatRequest
from stele.wire.kafka.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from stele.wire.kafka.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

from load.apache_kafka import ApacheKafka, apache_kafka, libs, run_tool
from tests.support.apache_kafka import kafka_or_skip
from tests.support.batches import batch_of
from tests.support.kafka_peer import KafkaPeer, api_of, create_topic, produce

# A topic of two partitions that every case may use; "missing" is one that does not exist.
TOPIC = "of-two"
NOT_ASKED = -(1 << 31)
NOTHING: list[object] = []
NO_TOPICS: dict[str, object] = {}
UNCLEAN, PREFERRED = 1, 0
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"


@dataclass(frozen=True, slots=True)
class Here:
    """What differs between the two brokers: who they are."""

    node_id: int
    directory: str


@dataclass(frozen=True, slots=True)
class Case:
    """``request`` in each of ``versions`` is answered with ``expected``, of which ``seen`` is compared."""

    name: str
    request: Callable[[Here], object]
    seen: Callable[[Any], object]
    expected: Callable[[Here], object]
    versions: tuple[int, ...] | None = None

    def versions_of(self, here: Here) -> range | tuple[int, ...]:
        first, last = api_of(self.request(here)).versions
        return self.versions or range(first, last + 1)


@dataclass(frozen=True, slots=True)
class by:  # noqa: N801 - it reads as a word of the table
    """A value that depends on which broker is asked."""

    make: Callable[[Here], object]


def case(
    name: str,
    request: object,
    seen: Callable[[Any], object],
    expected: object,
    *,
    versions: tuple[int, ...] | None = None,
) -> Case:
    """``request`` and ``expected`` are values, or ``by`` what is here."""

    def given(value: object) -> Callable[[Here], object]:
        return value.make if isinstance(value, by) else lambda _: value

    return Case(name, given(request), seen, given(expected), versions)


# ── elections and reassignments ──


def elect(kind: int, *topics: tuple[str, list[int]]) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in topics
        ],
    )


def elected(answer: ElectLeadersResponse) -> object:
    return answer.error_code, {
        one.topic: {p.partition_id: p.error_code for p in one.partition_result}
        for one in answer.replica_election_results
    }


def reassign(topic: str, partition: int, replicas: list[int] | None) -> object:
    return AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[ReassignablePartition(partition_index=partition, replicas=replicas)],
            )
        ]
    )


def reassigned(answer: AlterPartitionReassignmentsResponse) -> object:
    return answer.error_code, [p.error_code for one in answer.responses for p in one.partitions]


def listing(topics: list[tuple[str, list[int]]] | None) -> object:
    return ListPartitionReassignmentsRequest(
        topics=None
        if topics is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=partitions)
            for name, partitions in topics
        ]
    )


def moving(path: str, topic: str, partition: int) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=topic, partitions=[partition])],
            )
        ]
    )


def moved(answer: AlterReplicaLogDirsResponse) -> object:
    return [(one.topic_name, [p.error_code for p in one.partitions]) for one in answer.results]


LEADERS_AND_REPLICAS = [
    case("no election for every topic", ElectLeadersRequest(topic_partitions=None),
         lambda answer: (answer.error_code, [one.partition_result for one in answer.replica_election_results if one.topic == TOPIC]),
         (0, [NOTHING])),
    case("no election for no topic", elect(PREFERRED), elected, (0, NO_TOPICS)),
    case("a preferred election is not needed", elect(PREFERRED, (TOPIC, [0, 1])), elected,
         (0, {TOPIC: {0: E.ELECTION_NOT_NEEDED, 1: E.ELECTION_NOT_NEEDED}})),
    case("an unclean election is not needed", elect(UNCLEAN, (TOPIC, [0])), elected,
         (0, {TOPIC: {0: E.ELECTION_NOT_NEEDED}})),
    case("no election for what does not exist", elect(PREFERRED, (TOPIC, [9]), ("missing", [0])), elected,
         (0, {TOPIC: {9: E.UNKNOWN_TOPIC_OR_PARTITION}, "missing": {0: E.UNKNOWN_TOPIC_OR_PARTITION}})),
    case("an election of an unknown kind", elect(7, (TOPIC, [0])), elected,
         (E.INVALID_REQUEST, {TOPIC: {0: E.INVALID_REQUEST}}), versions=(1, 2)),
    case("a partition is assigned to where it is", by(lambda here: reassign(TOPIC, 0, [here.node_id])), reassigned, (0, [0])),
    case("a partition is assigned to no broker", reassign(TOPIC, 0, []), reassigned, (0, [E.INVALID_REPLICA_ASSIGNMENT])),
    case("a partition is assigned to a broker that does not exist", reassign(TOPIC, 0, [77]), reassigned,
         (0, [E.INVALID_REPLICA_ASSIGNMENT])),
    case("a partition is assigned to two brokers", by(lambda here: reassign(TOPIC, 0, [here.node_id, 77])), reassigned,
         (0, [E.INVALID_REPLICA_ASSIGNMENT])),
    case("a partition is assigned twice to one broker", by(lambda here: reassign(TOPIC, 0, [here.node_id] * 2)), reassigned,
         (0, [E.INVALID_REPLICA_ASSIGNMENT])),
    case("no reassignment to cancel", reassign(TOPIC, 0, None), reassigned, (0, [E.NO_REASSIGNMENT_IN_PROGRESS])),
    case("a missing partition is assigned", by(lambda here: reassign(TOPIC, 9, [here.node_id])), reassigned,
         (0, [E.UNKNOWN_TOPIC_OR_PARTITION])),
    case("a missing topic is not even cancelled", reassign("missing", 0, None), reassigned, (0, [E.UNKNOWN_TOPIC_OR_PARTITION])),
    *(
        case(f"nothing is being reassigned: {topics}", listing(topics), lambda answer: (answer.error_code, answer.topics), (0, NOTHING))
        for topics in (None, [], [(TOPIC, [0])], [("missing", [0])])
    ),
    case("a replica goes where it is", by(lambda here: moving(here.directory, TOPIC, 0)), moved, [(TOPIC, [0])]),
    case("a replica goes to a directory that is not there", moving("/elsewhere", TOPIC, 0), moved, [(TOPIC, [E.LOG_DIR_NOT_FOUND])]),
    case("a missing partition goes nowhere", by(lambda here: moving(here.directory, TOPIC, 9)), moved,
         [(TOPIC, [E.UNKNOWN_TOPIC_OR_PARTITION])]),
    case("a missing topic goes nowhere", by(lambda here: moving(here.directory, "missing", 0)), moved,
         [("missing", [E.UNKNOWN_TOPIC_OR_PARTITION])]),
    case("a missing directory comes before a missing topic", moving("/elsewhere", "missing", 0), moved,
         [("missing", [E.LOG_DIR_NOT_FOUND])]),
]  # fmt: skip


# ── the quorum, features, brokers, configurations ──


def quorum(*topics: tuple[str, int]) -> DescribeQuorumRequest:
    return DescribeQuorumRequest(
        topics=[
            TopicData(topic_name=name, partitions=[PartitionData(partition_index=partition)])
            for name, partition in topics
        ]
    )


def quorums(answer: DescribeQuorumResponse) -> object:
    return answer.error_code, [
        (p.error_code, p.leader_id, [voter.replica_id for voter in p.current_voters], p.observers)
        for topic in answer.topics
        for p in topic.partitions
    ]


def feature(name: str, level: int, kind: int = 1) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    return UpdateFeaturesRequest(feature_updates=[update], validate_only=True)


def resources(*kinds: int) -> ListConfigResourcesRequest:
    return ListConfigResourcesRequest(resource_types=kinds)


def resources_but_topics(answer: ListConfigResourcesResponse) -> object:
    """Of the topics only the one that all cases know."""
    found = [(one.resource_type, one.resource_name) for one in answer.config_resources]
    return answer.error_code, sorted(one for one in found if one[0] != 2 or one[1] == TOPIC)


def code_of(answer: Any) -> int:
    return answer.error_code


NO_QUORUM = (E.UNKNOWN_TOPIC_OR_PARTITION, 0, NOTHING, NOTHING)
CLUSTER = [
    case("a quorum of one", quorum(("__cluster_metadata", 0)), quorums,
         by(lambda here: (0, [(0, here.node_id, [here.node_id], NOTHING)]))),
    case("no other partition has a quorum", quorum(("__cluster_metadata", 1)), quorums, (0, [NO_QUORUM])),
    case("no other topic has a quorum", quorum((TOPIC, 0)), quorums, (0, [NO_QUORUM])),
    case("the quorum is asked for alone", quorum(("__cluster_metadata", 0), (TOPIC, 0)), quorums, (0, [NO_QUORUM] * 2)),
    case("no quorum is asked for", quorum(), quorums, (0, NOTHING)),
    case("the quorum names its node", quorum(("__cluster_metadata", 0)), lambda answer: [one.node_id for one in answer.nodes],
         by(lambda here: [here.node_id]), versions=(2,)),
    case("no voter is added",
         AddRaftVoterRequest(cluster_id=None, timeout_ms=1000, voter_id=5, voter_directory_id=bytes(range(16)),
                                            listeners=[AddRaftVoterListener(name="CONTROLLER", host="h", port=9)]),
         code_of, E.UNSUPPORTED_VERSION),
    case("no voter is removed",
         RemoveRaftVoterRequest(cluster_id=None, voter_id=5, voter_directory_id=bytes(range(16))),
         code_of, E.UNSUPPORTED_VERSION),
    *(
        case(f"a broker that does not exist is unregistered: {number}", UnregisterBrokerRequest(broker_id=number),
             code_of, E.BROKER_ID_NOT_REGISTERED)
        for number in (77, -1)
    ),
    case("a feature that does not exist is turned on", feature("nonsense", 1), code_of, E.INVALID_UPDATE_VERSION),
    case("a feature that does not exist is turned off", feature("nonsense", 0, 2), code_of, E.INVALID_UPDATE_VERSION, versions=(1, 2)),
    case("a metadata version nobody knows", feature("metadata.version", 99), code_of, E.INVALID_UPDATE_VERSION, versions=(1, 2)),
    case("a refused feature has no result of its own", feature("nonsense", 1), lambda answer: answer.results, [], versions=(0, 1)),
    case("no feature is updated", UpdateFeaturesRequest(feature_updates=()), code_of, 0),
    case("all that has configurations", resources(), resources_but_topics,
         by(lambda here: (0, [(2, TOPIC), (4, str(here.node_id)), (8, str(here.node_id))])), versions=(1,)),
    case("topics have configurations", resources(2), resources_but_topics, (0, [(2, TOPIC)]), versions=(1,)),
    case("brokers have configurations", resources(4), resources_but_topics, by(lambda here: (0, [(4, str(here.node_id))])), versions=(1,)),
    case("loggers have configurations", resources(8), resources_but_topics, by(lambda here: (0, [(8, str(here.node_id))])), versions=(1,)),
    case("client metrics have none", resources(16), resources_but_topics, (0, NOTHING), versions=(1,)),
    case("groups have none", resources(32), resources_but_topics, (0, NOTHING), versions=(1,)),
    case("a kind that has no configurations", resources(99), resources_but_topics, (E.UNSUPPORTED_VERSION, NOTHING), versions=(1,)),
    case("client metrics", ListConfigResourcesRequest(), lambda answer: (answer.error_code, answer.config_resources),
         (0, NOTHING), versions=(0,)),
]  # fmt: skip


# ── security and quotas ──


def scram(*users: str) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users])


def scram_results(answer: Any) -> object:
    return [(one.user, one.error_code) for one in answer.results]


def quotas(*components: tuple[str, int, str | None]) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=False,
    )


def described_quotas(answer: DescribeClientQuotasResponse) -> object:
    return answer.error_code, answer.entries


def quota(
    entity: list[tuple[str, str | None]], *changes: tuple[str, float, bool]
) -> AlterClientQuotasRequest:
    entry = AlterClientQuotasEntry(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[OpData(key=key, value=value, remove=remove) for key, value, remove in changes],
    )
    return AlterClientQuotasRequest(entries=[entry], validate_only=True)


def altered_quotas(answer: AlterClientQuotasResponse) -> object:
    return [
        (one.error_code, [(part.entity_type, part.entity_name) for part in one.entity])
        for one in answer.entries
    ]


ACL = AclCreation(
    resource_type=2, resource_name=TOPIC, principal="User:x", host="*", operation=3, permission_type=3
)
ACL_FILTER = DeleteAclsFilter(
    resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None,
    host_filter=None, operation=1, permission_type=1,
)  # fmt: skip
EXACT, DEFAULT, ANY = 0, 1, 2
SECURITY = [
    case("access rules are listed",
         DescribeAclsRequest(resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
                                           principal_filter=None, host_filter=None, operation=1, permission_type=1),
         lambda answer: (answer.error_code, answer.resources), (E.SECURITY_DISABLED, NOTHING)),
    case("access rules are made", CreateAclsRequest(creations=[ACL, ACL]),
         lambda answer: [one.error_code for one in answer.results], [E.SECURITY_DISABLED] * 2),
    case("access rules are deleted", DeleteAclsRequest(filters=[ACL_FILTER, ACL_FILTER]),
         lambda answer: [(one.error_code, one.matching_acls) for one in answer.filter_results], [(E.SECURITY_DISABLED, NOTHING)] * 2),
    case("all users", DescribeUserScramCredentialsRequest(users=None),
         lambda answer: (answer.error_code, answer.results), (0, NOTHING)),
    case("no users", scram(), scram_results, []),
    case("a user", scram("bob", ""), lambda answer: sorted(cast("list[Any]", scram_results(answer))),
         [("", E.RESOURCE_NOT_FOUND), ("bob", E.RESOURCE_NOT_FOUND)]),
    case("a user that is named twice", scram("bob", "bob"), scram_results, [("bob", E.DUPLICATE_RESOURCE)]),
    case("a user is deleted",
         AlterUserScramCredentialsRequest(
             deletions=[ScramCredentialDeletion(name="bob", mechanism=1)], upsertions=()),
         scram_results, [("bob", E.RESOURCE_NOT_FOUND)]),
    case("a user is made whose mechanism nobody knows",
         AlterUserScramCredentialsRequest(
             deletions=(), upsertions=[ScramCredentialUpsertion(
                 name="bob", mechanism=9, iterations=8192, salt=b"salt", salted_password=b"password")]),
         scram_results, [("bob", E.UNSUPPORTED_SASL_MECHANISM)]),
    case("a delegation token is made", CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime_ms=-1),
         code_of, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    case("a delegation token is renewed", RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
         code_of, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    case("a delegation token is ended", ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
         code_of, E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    case("delegation tokens are listed", DescribeDelegationTokenRequest(owners=None),
         lambda answer: (answer.error_code, answer.tokens), (E.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, NOTHING)),
    case("all quotas", quotas(), described_quotas, (0, NOTHING)),
    case("quotas of users and clients", quotas(("user", ANY, None), ("client-id", DEFAULT, None)), described_quotas, (0, NOTHING)),
    case("the quota of a user", quotas(("user", EXACT, "bob")), described_quotas, (0, NOTHING)),
    case("quotas of addresses", quotas(("ip", ANY, None)), described_quotas, (0, NOTHING)),
    case("quotas of nonsense", quotas(("nonsense", ANY, None)), described_quotas, (E.UNSUPPORTED_VERSION, None)),
    *(
        case(f"quotas by a filter that cannot be: {components}", quotas(*components), described_quotas, (E.INVALID_REQUEST, None))
        for components in (
            [("user", 7, None)], [("user", EXACT, None)], [("user", DEFAULT, "x")], [("user", ANY, None)] * 2,
            [("ip", EXACT, "127.0.0.1"), ("user", ANY, None)], [("", EXACT, "x")],
        )
    ),
    case("a quota that is not there is removed", quota([("user", "bob")], ("producer_byte_rate", 0.0, True)), altered_quotas,
         [(0, [("user", "bob")])]),
    case("the quota of nobody", quota([], ("producer_byte_rate", 5.0, False)), altered_quotas, [(E.INVALID_REQUEST, NOTHING)]),
    case("the quota of nonsense", quota([("nonsense", None)], ("producer_byte_rate", 5.0, False)), altered_quotas,
         [(E.INVALID_REQUEST, [("nonsense", None)])]),
    case("a quota of nonsense", quota([("user", None)], ("nonsense", 5.0, False)), altered_quotas,
         [(E.INVALID_REQUEST, [("user", None)])]),
    case("a quota is set, only to see whether it could be", quota([("user", "bob")], ("producer_byte_rate", 5.0, False)), altered_quotas,
         [(0, [("user", "bob")])]),
    case("no quota changes", quota([("user", None)]), altered_quotas, [(0, [("user", None)])]),
]  # fmt: skip


# ── what a client may do (KIP-430) ──


def topics_of(*names: str, is_asked: bool) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=is_asked,
        include_topic_authorized_operations=is_asked,
    )


def operations(answer: Any) -> object:
    return {topic.name: topic.topic_authorized_operations for topic in answer.topics}


authorized: list[Case] = []
for is_asked in (True, False):
    topic, group, cluster = (3576, 3400, 8096) if is_asked else (NOT_ASKED,) * 3
    said = "asked" if is_asked else "not asked"
    authorized += [
        case(f"operations on topics, {said}", topics_of(TOPIC, "missing", "bad/name", is_asked=is_asked), operations,
             {TOPIC: topic, "missing": topic, "bad/name": topic}, versions=(8, 9, 10, 11, 12, 13)),
        case(f"operations on the cluster in Metadata, {said}", topics_of(is_asked=is_asked),
             lambda answer: answer.cluster_authorized_operations, cluster, versions=(8, 9, 10)),
        case(f"operations on the cluster, {said}",
             DescribeClusterRequest(include_cluster_authorized_operations=is_asked),
             lambda answer: answer.cluster_authorized_operations, cluster),
        case(f"operations on a group that is dead, {said}",
             DescribeGroupsRequest(groups=["nobody"], include_authorized_operations=is_asked),
             lambda answer: [one.authorized_operations for one in answer.groups], [group], versions=(3, 4, 5)),
        case(f"operations on a group that is not found, {said}",
             DescribeGroupsRequest(groups=["nobody"], include_authorized_operations=is_asked),
             lambda answer: [one.authorized_operations for one in answer.groups], [NOT_ASKED], versions=(6,)),
    ]  # fmt: skip
authorized += [
    case("operations on a topic that is asked for by an unknown id",
         MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=bytes(range(16)))],
                                  allow_auto_topic_creation=False, include_topic_authorized_operations=True),
         lambda answer: [one.topic_authorized_operations for one in answer.topics], [NOT_ASKED], versions=(12, 13)),
    case("operations on described topics",
         DescribeTopicPartitionsRequest(
             topics=[TopicRequest(name=name) for name in (TOPIC, "missing")], cursor=None),
         operations, {TOPIC: 3576, "missing": 3576}),
    *(
        case(f"an endpoint of another kind: {kind}",
             DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=kind),
             lambda answer: (answer.error_code, answer.endpoint_type, answer.cluster_id, answer.brokers,
                             answer.cluster_authorized_operations),
             (code, 1, "", NOTHING, NOT_ASKED), versions=(1, 2))
        for kind, code in ((2, E.MISMATCHED_ENDPOINT_TYPE), (3, E.UNSUPPORTED_ENDPOINT_TYPE))
    ),
]  # fmt: skip


# ── group protocols that are turned off, transactions that there are none of ──


def states_of(answer: Any) -> object:
    return [(one.group_id, one.error_code, one.group_state, one.members) for one in answer.groups]


def transactions(*states: str) -> ListTransactionsRequest:
    return ListTransactionsRequest(state_filters=states, producer_id_filters=())


UNSUPPORTED_GROUPS = [(group, E.UNSUPPORTED_VERSION, "", NOTHING) for group in ("g", "h")]
NOT_SERVED = [
    case("a member of a group of Kafka Streams",
         StreamsGroupHeartbeatRequest(),
         code_of, E.UNSUPPORTED_VERSION),
    case("groups of Kafka Streams",
         StreamsGroupDescribeRequest(group_ids=["g", "h"], include_authorized_operations=True),
         states_of, UNSUPPORTED_GROUPS),
    case("transactions", transactions(), lambda answer: (answer.error_code, answer.unknown_state_filters, answer.transaction_states),
         (0, NOTHING, NOTHING)),
    case("transactions in a state nobody knows", transactions("Ongoing", "Nonsense"),
         lambda answer: (answer.error_code, answer.unknown_state_filters, answer.transaction_states), (0, ["Nonsense"], NOTHING)),
    case("the transaction of no id", DescribeTransactionsRequest(transactional_ids=[""]),
         lambda answer: [one.error_code for one in answer.transaction_states], [E.INVALID_REQUEST]),
    *(
        case(f"a sync without its {field}",
             SyncGroupRequest(group_id="nobody", generation_id=1, member_id="m", assignments=(),
                                         **{"protocol_type": "consumer", "protocol_name": "range", field: None}),
             code_of, E.INCONSISTENT_GROUP_PROTOCOL, versions=(5,))
        for field in ("protocol_type", "protocol_name")
    ),
]  # fmt: skip


# ── SASL on a listener without it, and transactions of an id that no producer has registered ──


def added(*topics: tuple[str, list[int]], transactional_id: str) -> object:
    """``AddPartitionsToTxn`` as the version has it: one transaction, or a list of one."""
    wanted = [AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in topics]
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id, producer_id=5, producer_epoch=0, topics=wanted
            )
        ],
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=5,
        v3_and_below_topics=wanted,
    )


def not_added(answer: AddPartitionsToTxnResponse) -> object:
    """The error of each partition, and that of the answer."""
    of_topics = [*answer.results_by_topic_v3_and_below]
    for transaction in answer.results_by_transaction:
        assert transaction.transactional_id in ("", "nobody")
        of_topics += transaction.topic_results
    return answer.error_code, {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in of_topics
        for partition in topic.results_by_partition
    }


def offsets_added(transactional_id: str, group: str) -> object:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id, producer_id=5, producer_epoch=0, group_id=group
    )


def ended(transactional_id: str, *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=5, producer_epoch=0, committed=committed
    )


def offsets_committed(
    transactional_id: str, topic: str, group: str = "transactional"
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=5,
        producer_epoch=0,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=3, committed_metadata=""
                    )
                    for index in (0, 1)
                ],
            )
        ],
    )


def not_committed(answer: TxnOffsetCommitResponse) -> object:
    return [(one.name, p.partition_index, p.error_code) for one in answer.topics for p in one.partitions]


NO_PARTITIONS: dict[tuple[str, int], int] = {}
UNKNOWN_TO_ALL = {"nobody": E.INVALID_PRODUCER_ID_MAPPING, "": E.INVALID_REQUEST}
SASL_AND_TRANSACTIONS = [
    *(
        case(f"a SASL handshake for {mechanism!r}", SaslHandshakeRequest(mechanism=mechanism),
             lambda answer: (answer.error_code, answer.mechanisms), (E.ILLEGAL_SASL_STATE, NOTHING))
        for mechanism in ("PLAIN", "SCRAM-SHA-512", "nonsense", "")
    ),
    *(
        case(f"SASL authentication with {data!r}", SaslAuthenticateRequest(auth_bytes=data),
             lambda answer: (answer.error_code, bool(answer.error_message), answer.auth_bytes, answer.session_lifetime_ms),
             (E.ILLEGAL_SASL_STATE, True, b"", 0))
        for data in (b"\0user\0password", b"")
    ),
    *(
        one
        for transactional_id, code in UNKNOWN_TO_ALL.items()
        for one in (
            case(f"partitions for the transaction of {transactional_id!r}", added((TOPIC, [0, 1]), transactional_id=transactional_id),
                 not_added, (0, {(TOPIC, 0): code, (TOPIC, 1): code})),
            case(f"no partitions for the transaction of {transactional_id!r}", added(transactional_id=transactional_id),
                 not_added, (0, NO_PARTITIONS)),
            case(f"a group for the transaction of {transactional_id!r}", offsets_added(transactional_id, "g"), code_of, code),
            case(f"a group without a name for the transaction of {transactional_id!r}", offsets_added(transactional_id, ""), code_of, code),
            case(f"a commit of the transaction of {transactional_id!r}", ended(transactional_id, committed=True),
                 lambda answer: (answer.error_code, answer.producer_id, answer.producer_epoch), (code, -1, -1)),
            case(f"an abort of the transaction of {transactional_id!r}", ended(transactional_id, committed=False),
                 lambda answer: (answer.error_code, answer.producer_id, answer.producer_epoch), (code, -1, -1)),
            case(f"offsets committed in the transaction of {transactional_id!r}", offsets_committed(transactional_id, TOPIC),
                 not_committed, [(TOPIC, 0, code), (TOPIC, 1, code)]),
        )
    ),
    case("partitions, some of which do not exist, for a transaction", added((TOPIC, [0, 9]), ("missing", [0]), transactional_id="nobody"),
         not_added, (0, {(TOPIC, 0): E.OPERATION_NOT_ATTEMPTED, (TOPIC, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
                         ("missing", 0): E.UNKNOWN_TOPIC_OR_PARTITION})),
]  # fmt: skip
ANSWERS = [*LEADERS_AND_REPLICAS, *CLUSTER, *SECURITY, *authorized, *NOT_SERVED, *SASL_AND_TRANSACTIONS]


def here_of(peer: KafkaPeer) -> Here:
    cluster = peer.call(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
    (dirs,) = peer.call(DescribeLogDirsRequest(topics=()), 1).results
    return Here(cluster.controller_id, dirs.log_dir)


def differences(peer: KafkaPeer, cases: list[Case]) -> list[str]:
    """A line for each version of each case that is answered otherwise."""
    here = here_of(peer)
    found: list[str] = []
    for one in cases:
        for version in one.versions_of(here):
            answer = one.seen(peer.call(one.request(here), version))
            if answer != one.expected(here):
                found.append(f"{one.name}, v{version}: {answer} instead of {one.expected(here)}")
    return found


# ── Stele ──


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with run_broker() as broker:
        with KafkaPeer(broker) as peer:
            create_topic(peer, TOPIC, partitions=2)
        yield broker


@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in ANSWERS])
def test_a_single_broker_answers_as_kafka_does(peer: KafkaPeer, one: Case) -> None:
    assert differences(peer, [one]) == []


def test_cases_have_names_of_their_own() -> None:
    assert len({one.name for one in ANSWERS}) == len(ANSWERS)


# What Apache Kafka does, and Stele refuses: (request, what it says of the reason).
REFUSED = [
    case("changes of topics are limited", quota([("user", "bob")], ("controller_mutation_rate", 5.0, False)),
         lambda answer: [(one.error_code, one.error_message) for one in answer.entries],
         [(E.INVALID_REQUEST, "controller_mutation_rate is not supported: this broker does not limit changes to topics")]),
    case("a feature that Kafka has is turned on", feature("group.version", 1),
         lambda answer: (answer.error_code, "has no features" in answer.error_message), (E.INVALID_UPDATE_VERSION, True)),
    case("the broker itself is unregistered", by(lambda here: UnregisterBrokerRequest(broker_id=here.node_id)),
         lambda answer: (answer.error_code, answer.error_message),
         by(lambda here: (E.INVALID_REQUEST, f"broker {here.node_id} is the only one; stop it instead"))),
    case("a transaction by its id", DescribeTransactionsRequest(transactional_ids=["nobody"]),
         lambda answer: [one.error_code for one in answer.transaction_states], [E.TRANSACTIONAL_ID_NOT_FOUND]),
    # Kafka: UNKNOWN_TOPIC_OR_PARTITION for what does not exist, before it looks at the producer.
    case("offsets of a topic that does not exist are committed in a transaction", offsets_committed("nobody", "missing"),
         not_committed, [("missing", 0, E.INVALID_PRODUCER_ID_MAPPING), ("missing", 1, E.INVALID_PRODUCER_ID_MAPPING)]),
    case("SASL credentials are sent", SaslAuthenticateRequest(auth_bytes=b"\0user\0password"),
         lambda answer: answer.error_message, "this listener has no SASL; connect with security.protocol=PLAINTEXT"),
]  # fmt: skip


@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in REFUSED])
def test_what_one_broker_without_security_cannot_do_is_refused_with_a_reason(
    peer: KafkaPeer, one: Case
) -> None:
    assert differences(peer, [one]) == []


def committed_offsets(peer: KafkaPeer, group: str) -> list[object]:
    answer = peer.call(OffsetFetchRequest(group_id=group, topics=None), 7)
    assert answer.error_code == E.NONE
    return list(answer.topics)


def test_a_transactional_commit_commits_nothing(peer: KafkaPeer) -> None:
    first, last = api_of(offsets_committed("nobody", TOPIC)).versions
    for version in range(first, last + 1):
        peer.call(offsets_committed("nobody", TOPIC, "untouched"), version)
        assert peer.call(ended("nobody", committed=True), 1).error_code
    assert committed_offsets(peer, "untouched") == []


def test_a_connection_stays_open_after_a_refused_sasl_handshake(peer: KafkaPeer) -> None:
    refused = peer.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert refused.error_code == E.ILLEGAL_SASL_STATE
    assert here_of(peer)


def test_a_described_group_has_its_authorized_operations_and_member_hosts(peer: KafkaPeer) -> None:
    assert joined_group(peer, "authorized") == (0, "Stable", 3400, ["/127.0.0.1"])


def joined_group(peer: KafkaPeer, group: str) -> object:
    """What is said of a group of one member: code, state, operations, where its members are."""

    def join(member_id: str) -> Any:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        return peer.call(request, 5)

    joined = join(join("").member_id)
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=(),
    )
    assert peer.call(sync, 5).error_code == E.NONE
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    (found,) = peer.call(request, 6).groups
    hosts = [member.client_host for member in found.members]
    return found.error_code, found.group_state, found.authorized_operations, hosts


def remembered_producer(peer: KafkaPeer, topic: str) -> object:
    """What a partition says of an idempotent producer that wrote two records to it."""
    # Kafka forgets a producer whose records are old.
    batch = batch_of(
        [b"a", b"b"],
        timestamp_ms=time.time_ns() // 1_000_000,
        producer_id=99,
        producer_epoch=0,
    )
    answer = peer.call(produce(topic, batch, acks=-1), 9)
    assert answer.responses[0].partition_responses[0].error_code == E.NONE
    asked = DescribeProducersTopic(name=topic, partition_indexes=[0])
    (described,) = peer.call(DescribeProducersRequest(topics=[asked]), 0).topics
    (one,) = [one for one in described.partitions[0].active_producers if one.producer_id == 99]
    return (
        one.producer_epoch,
        one.last_sequence,
        one.coordinator_epoch,
        one.current_txn_start_offset,
    )


# Epoch, last sequence; no coordinator and no open transaction.
REMEMBERED = (0, 1, -1, -1)


def test_a_producer_without_transactions_is_described_as_such(peer: KafkaPeer) -> None:
    assert remembered_producer(peer, TOPIC) == REMEMBERED


# ── the tools themselves ──


@dataclass(frozen=True, slots=True)
class Tool:
    """A call of one of Kafka's command-line tools; ``says`` is found in what it prints."""

    name: str
    arguments: tuple[str, ...]
    exit_code: int
    says: str
    class_name: str

    def run(self, bootstrap: str, node_id: int) -> str | None:
        """None, or how its end differs."""
        arguments = [one.replace("NODE", str(node_id)) for one in self.arguments]
        # kafka-cluster and kafka-transactions want their subcommand first or last.
        server = ["--bootstrap-server", bootstrap]
        subcommand_first = self.class_name.endswith("ClusterTool")
        done = run_tool(
            self.class_name, *((arguments + server) if subcommand_first else (server + arguments))
        )
        printed = done.stdout + done.stderr
        if done.returncode == self.exit_code and re.search(self.says.replace("NODE", str(node_id)), printed):
            return None
        return f"{self.name}: exit code {done.returncode}, {printed[-2000:]}"


def tool(class_name: str, arguments: str, exit_code: int, says: str) -> Tool:
    in_tools = "" if class_name.startswith("kafka.") else "org.apache.kafka.tools."
    name = f"{class_name.rpartition('.')[2]} {arguments}"
    return Tool(name, tuple(arguments.split()), exit_code, says, in_tools + class_name)


TOOLS = [
    tool("LeaderElectionCommand", "--election-type preferred --all-topic-partitions", 0, r"\A\s*\Z"),
    tool("LeaderElectionCommand", f"--election-type preferred --topic {TOPIC} --partition 0", 0,
         f"Valid replica already elected for partitions {TOPIC}-0"),
    tool("LeaderElectionCommand", f"--election-type unclean --topic {TOPIC} --partition 1", 0,
         f"Valid replica already elected for partitions {TOPIC}-1"),
    tool("reassign.ReassignPartitionsCommand", "--list", 0, "No partition reassignments found"),
    tool("MetadataQuorumCommand", "describe --status", 0,
         r"(?s)LeaderId: +NODE\n.*MaxFollowerLag: +0\n.*CurrentVoters: .*\"id\": NODE.*CurrentObservers: +\[\]"),
    tool("MetadataQuorumCommand", "describe --replication", 0, r"(?m)^NODE\s+\S+\s+\d+\s+0 .*Leader"),
    tool("FeatureCommand", "describe", 0, ""),
    tool("FeatureCommand", "upgrade --feature nonsense=1", 1, "Could not upgrade nonsense to 1"),
    tool("ClientMetricsCommand", "--list", 0, r"\A\s*\Z"),
    tool("TransactionsCommand", "list", 0, r"TransactionalId\s+Coordinator\s+ProducerId\s+TransactionState\s*\Z"),
    tool("TransactionsCommand", "find-hanging --broker-id NODE", 0, r"Duration\(min\)\s*\Z"),
    tool("TransactionsCommand", f"describe-producers --topic {TOPIC} --partition 1", 0, r"CurrentTransactionStartOffset\s*\Z"),
    tool("TransactionsCommand", "describe --transactional-id x", 1, "Failed to describe transaction state"),
    tool("ClusterTool", "list-endpoints", 0, r"(?m)^NODE\s+127\.0\.0\.1\s+\d+\s+null\s+unfenced\s+broker"),
    tool("ClusterTool", "cluster-id", 0, r"Cluster ID: \S{22}\n"),
    tool("ClusterTool", "unregister --id 77", 1, "BrokerIdNotRegisteredException"),
    tool("AclCommand", "--list", 1, "SecurityDisabledException"),
    tool("kafka.admin.ConfigCommand", "--describe --entity-type users", 0, r"\A\s*\Z"),
    tool("kafka.admin.ConfigCommand", "--describe --entity-type clients", 0, r"\A\s*\Z"),
    tool("kafka.admin.ConfigCommand", "--describe --entity-type ips", 0, r"\A\s*\Z"),
    tool("LogDirsCommand", f"--describe --topic-list {TOPIC}", 0, f'"partition":"{TOPIC}-1"'),
    tool("BrokerApiVersionsCommand", "", 0, r"(?s)ElectLeaders\(43\): 0 to 2.*DescribeQuorum\(55\): 0 to 2"),
    tool("GroupsCommand", "--list", 0, "GROUP +TYPE +PROTOCOL"),
    tool("consumer.group.ConsumerGroupCommand", "--describe --group nobody", 0, "GroupIdNotFoundException"),
    tool("consumer.group.ShareGroupCommand", "--list", 0, r"\A\s*\Z"),
    tool("streams.StreamsGroupCommand", "--list", 0, r"\A\s*\Z"),
]  # fmt: skip


@pytest.fixture(scope="module")
def java_tools() -> None:
    with kafka_or_skip():
        libs()


@pytest.mark.long
@pytest.mark.parametrize("one", [pytest.param(one, id=one.name) for one in TOOLS])
def test_kafkas_own_tools_end_as_against_kafka(java_tools: None, broker: BrokerProcess, one: Tool) -> None:
    with KafkaPeer(broker) as peer:
        assert one.run(broker.kafka_bootstrap, here_of(peer).node_id) is None


# ── Apache Kafka ──


@dataclass(frozen=True, slots=True)
class _Address:
    host: str
    kafka_port: int


@pytest.mark.long
def test_apache_kafka_gives_these_answers(java_tools: None) -> None:
    with apache_kafka(properties=WITHOUT_NEW_PROTOCOLS, heap="512m") as kafka:
        turn_off(kafka, "group.version", "share.version", "streams.version")
        address = cast("BrokerProcess", _Address(kafka.host, kafka.port))
        with KafkaPeer(address) as peer:
            create_topic(peer, TOPIC, partitions=2)
        await_coordinator(kafka)
        with KafkaPeer(address) as peer:
            await_transaction_coordinator(peer)
            node_id = here_of(peer).node_id
            different = differences(peer, ANSWERS)
            assert joined_group(peer, "authorized") == (0, "Stable", 3400, ["/127.0.0.1"])
            assert remembered_producer(peer, TOPIC) == REMEMBERED
        # In one test, so that one start of the broker serves them all.
        different += [found for one in TOOLS if (found := one.run(kafka.bootstrap, node_id))]
    assert different == []


WITHOUT_NEW_PROTOCOLS = {
    "group.coordinator.rebalance.protocols": "classic",
    # One coordinator for all groups.
    "offsets.topic.num.partitions": "1",
    # And one for all transactions.
    "transaction.state.log.num.partitions": "1",
}


def turn_off(kafka: ApacheKafka, *features: str) -> None:
    for name in features:
        done = run_tool(
            "org.apache.kafka.tools.FeatureCommand",
            *("--bootstrap-server", kafka.bootstrap, "downgrade", "--feature", f"{name}=0"),
        )
        assert done.returncode == 0, done.stdout + done.stderr


def await_coordinator(kafka: ApacheKafka) -> None:
    """Returns when the group coordinator serves its one partition; a member joins until it has."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "first"})
    consumer.subscribe([TOPIC])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < deadline, "no assignment"
        consumer.poll(1)
    consumer.close()


def await_transaction_coordinator(peer: KafkaPeer) -> None:
    """Returns when the transaction coordinator serves its one partition; asking for it creates the topic."""
    deadline = time.monotonic() + 60
    while peer.call(ended("nobody", committed=False), 1).error_code != E.INVALID_PRODUCER_ID_MAPPING:
        assert time.monotonic() < deadline, "no transaction coordinator"
        peer.call(FindCoordinatorRequest(key="nobody", key_type=1), 2)
        time.sleep(0.1)
