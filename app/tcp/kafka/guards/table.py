"""The rights of each API, by its key. An API without a row is refused."""

from __future__ import annotations

from typing import Any

from ....security.acl import (
    ALTER_CLUSTER,
    ALTER_CONFIGS_CLUSTER,
    ALTER_CONFIGS_GROUP,
    ALTER_CONFIGS_TOPIC,
    ALTER_TOPIC,
    DELETE_GROUP,
    DELETE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS_CLUSTER,
    DESCRIBE_TOPIC,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TRANSACTIONAL_ID,
)
from ..schemas import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from . import groups, topics, transactions
from .refusals import refused
from .rights import PARTITIONS, Guard, Parts, on_cluster, on_each, on_name, open_to_all


def _each_partition(request: Any) -> Any:
    """Refuse AlterReplicaLogDirs, whose errors are per partition."""
    module = alter_replica_log_dirs
    return module.AlterReplicaLogDirsResponse(
        results=[
            module.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    refused(
                        module.AlterReplicaLogDirPartitionResult, ALTER_CLUSTER, partition_index=partition
                    )
                    for partition in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _each_user(request: Any) -> Any:
    module = alter_user_scram_credentials
    names = dict.fromkeys(entry.name for entry in (*request.deletions, *request.upsertions))
    return module.AlterUserScramCredentialsResponse(
        results=[refused(module.AlterUserScramCredentialsResult, ALTER_CLUSTER, user=name) for name in names]
    )


def _each_quota(request: Any) -> Any:
    module = alter_client_quotas
    return module.AlterClientQuotasResponse(
        entries=[
            refused(
                module.EntryDataResult,
                ALTER_CONFIGS_CLUSTER,
                entity=[
                    module.EntityDataResult(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _each_creation(request: Any) -> Any:
    result = refused(create_acls.AclCreationResult, ALTER_CLUSTER)
    return create_acls.CreateAclsResponse(results=[result] * len(request.creations))


def _each_filter(request: Any) -> Any:
    result = refused(delete_acls.DeleteAclsFilterResult, ALTER_CLUSTER)
    return delete_acls.DeleteAclsResponse(filter_results=[result] * len(request.filters))


GUARDS: dict[int, Guard] = {
    # ── records and topics ──
    produce.API.key: topics.PRODUCE,
    fetch.API.key: topics.FETCH,
    list_offsets.API.key: on_each(DESCRIBE_TOPIC, list_offsets.ListOffsetsResponse, PARTITIONS),
    metadata.API.key: topics.METADATA,
    describe_cluster.API.key: topics.DESCRIBE_CLUSTER,
    describe_topic_partitions.API.key: topics.DESCRIBE_TOPIC_PARTITIONS,
    create_topics.API.key: topics.CREATE_TOPICS,
    delete_topics.API.key: topics.DELETE_TOPICS,
    delete_records.API.key: on_each(DELETE_TOPIC, delete_records.DeleteRecordsResponse, PARTITIONS),
    create_partitions.API.key: on_each(
        ALTER_TOPIC,
        create_partitions.CreatePartitionsResponse,
        Parts(field="topics", name="name", answers="results", answer_name="name"),
    ),
    offset_for_leader_epoch.API.key: on_each(
        DESCRIBE_TOPIC,
        offset_for_leader_epoch.OffsetForLeaderEpochResponse,
        Parts(
            field="topics",
            name="topic",
            answers="topics",
            answer_name="topic",
            partitions="partitions",
            index="partition",
            answer_partitions="partitions",
            answer_index="partition",
        ),
    ),
    describe_producers.API.key: on_each(
        READ_TOPIC,
        describe_producers.DescribeProducersResponse,
        Parts(
            field="topics",
            name="name",
            answers="topics",
            answer_name="name",
            partitions="partition_indexes",
            answer_partitions="partitions",
            answer_index="partition_index",
        ),
    ),
    describe_configs.API.key: topics.on_configs(
        describe_configs.DescribeConfigsResponse, "results", *topics.DESCRIBE_CONFIGS_RIGHTS
    ),
    alter_configs.API.key: topics.on_configs(
        alter_configs.AlterConfigsResponse,
        "responses",
        ALTER_CONFIGS_TOPIC,
        ALTER_CONFIGS_GROUP,
        ALTER_CONFIGS_CLUSTER,
    ),
    incremental_alter_configs.API.key: topics.on_configs(
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        "responses",
        ALTER_CONFIGS_TOPIC,
        ALTER_CONFIGS_GROUP,
        ALTER_CONFIGS_CLUSTER,
    ),
    # ── groups ──
    find_coordinator.API.key: groups.FIND_COORDINATOR,
    list_groups.API.key: groups.LIST_GROUPS,
    describe_groups.API.key: groups.on_described_groups(describe_groups.DescribeGroupsResponse, "groups"),
    join_group.API.key: on_name(READ_GROUP, "group_id", join_group.JoinGroupResponse, protocol_name=""),
    sync_group.API.key: on_name(READ_GROUP, "group_id", sync_group.SyncGroupResponse),
    heartbeat.API.key: on_name(READ_GROUP, "group_id", heartbeat.HeartbeatResponse),
    leave_group.API.key: on_name(READ_GROUP, "group_id", leave_group.LeaveGroupResponse),
    offset_commit.API.key: groups.OFFSET_COMMIT,
    offset_fetch.API.key: groups.OFFSET_FETCH,
    offset_delete.API.key: groups.OFFSET_DELETE,
    delete_groups.API.key: on_each(
        DELETE_GROUP,
        delete_groups.DeleteGroupsResponse,
        Parts(field="groups_names", name="", answers="results", answer_name="group_id"),
    ),
    consumer_group_heartbeat.API.key: groups.CONSUMER_HEARTBEAT,
    consumer_group_describe.API.key: groups.CONSUMER_DESCRIBE,
    share_group_heartbeat.API.key: groups.SHARE_HEARTBEAT,
    share_group_describe.API.key: groups.SHARE_DESCRIBE,
    share_fetch.API.key: groups.SHARE_FETCH,
    share_acknowledge.API.key: groups.SHARE_ACKNOWLEDGE,
    streams_group_heartbeat.API.key: on_name(
        READ_GROUP, "group_id", streams_group_heartbeat.StreamsGroupHeartbeatResponse
    ),
    streams_group_describe.API.key: groups.on_described_groups(
        streams_group_describe.StreamsGroupDescribeResponse, "group_ids"
    ),
    describe_share_group_offsets.API.key: groups.SHARE_OFFSETS,
    alter_share_group_offsets.API.key: groups.ALTER_SHARE_OFFSETS,
    delete_share_group_offsets.API.key: groups.DELETE_SHARE_OFFSETS,
    # ── transactions ──
    init_producer_id.API.key: transactions.INIT_PRODUCER_ID,
    add_partitions_to_txn.API.key: transactions.ADD_PARTITIONS_TO_TXN,
    add_offsets_to_txn.API.key: transactions.ADD_OFFSETS_TO_TXN,
    end_txn.API.key: on_name(WRITE_TRANSACTIONAL_ID, "transactional_id", end_txn.EndTxnResponse),
    txn_offset_commit.API.key: transactions.TXN_OFFSET_COMMIT,
    describe_transactions.API.key: transactions.DESCRIBE_TRANSACTIONS,
    list_transactions.API.key: transactions.LIST_TRANSACTIONS,
    write_txn_markers.API.key: transactions.WRITE_TXN_MARKERS,
    # ── the cluster ──
    describe_log_dirs.API.key: on_cluster(DESCRIBE_CLUSTER, describe_log_dirs.DescribeLogDirsResponse),
    alter_replica_log_dirs.API.key: on_cluster(
        ALTER_CLUSTER, alter_replica_log_dirs.AlterReplicaLogDirsResponse, _each_partition
    ),
    elect_leaders.API.key: on_cluster(ALTER_CLUSTER, elect_leaders.ElectLeadersResponse),
    alter_partition_reassignments.API.key: on_cluster(
        ALTER_CLUSTER, alter_partition_reassignments.AlterPartitionReassignmentsResponse
    ),
    list_partition_reassignments.API.key: on_cluster(
        DESCRIBE_CLUSTER, list_partition_reassignments.ListPartitionReassignmentsResponse
    ),
    describe_quorum.API.key: on_cluster(DESCRIBE_CLUSTER, describe_quorum.DescribeQuorumResponse),
    update_features.API.key: on_cluster(ALTER_CLUSTER, update_features.UpdateFeaturesResponse),
    unregister_broker.API.key: on_cluster(ALTER_CLUSTER, unregister_broker.UnregisterBrokerResponse),
    list_config_resources.API.key: on_cluster(
        DESCRIBE_CONFIGS_CLUSTER, list_config_resources.ListConfigResourcesResponse
    ),
    add_raft_voter.API.key: on_cluster(ALTER_CLUSTER, add_raft_voter.AddRaftVoterResponse),
    remove_raft_voter.API.key: on_cluster(ALTER_CLUSTER, remove_raft_voter.RemoveRaftVoterResponse),
    # ── users, access rules, quotas ──
    describe_user_scram_credentials.API.key: on_cluster(
        DESCRIBE_CLUSTER, describe_user_scram_credentials.DescribeUserScramCredentialsResponse
    ),
    alter_user_scram_credentials.API.key: on_cluster(
        ALTER_CLUSTER, alter_user_scram_credentials.AlterUserScramCredentialsResponse, _each_user
    ),
    describe_acls.API.key: on_cluster(DESCRIBE_CLUSTER, describe_acls.DescribeAclsResponse),
    create_acls.API.key: on_cluster(ALTER_CLUSTER, create_acls.CreateAclsResponse, _each_creation),
    delete_acls.API.key: on_cluster(ALTER_CLUSTER, delete_acls.DeleteAclsResponse, _each_filter),
    describe_client_quotas.API.key: on_cluster(
        DESCRIBE_CONFIGS_CLUSTER, describe_client_quotas.DescribeClientQuotasResponse
    ),
    alter_client_quotas.API.key: on_cluster(
        ALTER_CONFIGS_CLUSTER, alter_client_quotas.AlterClientQuotasResponse, _each_quota
    ),
    # ── needed to get so far, or refused to everybody ──
    api_versions.API.key: open_to_all(),
    sasl_handshake.API.key: open_to_all(),
    sasl_authenticate.API.key: open_to_all(),
    create_delegation_token.API.key: open_to_all(),
    renew_delegation_token.API.key: open_to_all(),
    expire_delegation_token.API.key: open_to_all(),
    describe_delegation_token.API.key: open_to_all(),
}
