"""The table of served APIs: one row per API. It drives ApiVersions and dispatch."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from stele.wire import schema
from stele.wire.error_codes import ErrorCode

from ...broker.broker import Broker
from .api import Api
from .features import FEATURES_EPOCH, FINALIZED, supported
from .handlers import (
    acls,
    cluster,
    committed_offsets,
    configs,
    consumer_groups,
    fetch,
    groups,
    leader_epoch,
    list_offsets,
    log_dirs,
    membership,
    metadata,
    not_served,
    produce,
    producers,
    quotas,
    security,
    share_fetch,
    share_groups,
    topics,
    transaction_admin,
    transactions,
    users,
)
from .handlers.context import Answer, Context
from .schemas import (
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
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_partition_reassignments,
    list_transactions,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    remove_raft_voter,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
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
from .schemas import fetch as fetch_schema
from .schemas import list_offsets as list_offsets_schema
from .schemas import metadata as metadata_schema
from .schemas import produce as produce_schema
from .schemas import share_fetch as share_fetch_schema
from .schemas.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from .topics_named import looking_for_topics, names_topics

# KIP-511: valid names and versions of client software.
_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_FIRST_WITH_CLIENT_SOFTWARE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One API and the handler that answers it.

    ``changes``: the work continues after the client has disconnected. ``is_barrier``:
    whether no later request of the connection may begin before this one has ended.
    ``walks``: the handler visits any number of partitions or groups and pauses among
    them; it too keeps later requests of its connection waiting, so that a client sees
    its own requests take effect one after the other. ``reads``: the largest size of the
    response in bytes, for requests that read the log. ``is_long``: whether a response is
    encoded in a thread, because encoding it would hold the event loop.
    """

    api: Api
    handle: Callable[[Context, Any], Answer]
    changes: bool = False
    is_barrier: Callable[[Broker, Any], bool] | None = None
    walks: bool = False
    reads: Callable[[Broker, Any], int] | None = None
    carries_records: bool = False
    is_long: Callable[[Any], bool] | None = None

    def write(self, version: int, response: Any, head: bytearray, parts: list[bytes | bytearray]) -> None:
        """Append ``head`` and the encoded response to ``parts``; records are not copied."""
        api = self.api
        write = schema.gathering_writer(cast("type[Any]", api.response), version, api.is_flexible(version))
        write(response, head, parts)


def _always(_broker: Broker, _request: Any) -> bool:
    return True


def _answer_api_versions(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    named = (request.client_software_name, request.client_software_version)
    if context.version >= _FIRST_WITH_CLIENT_SOFTWARE and not all(map(_CLIENT_SOFTWARE.fullmatch, named)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_ADVERTISED,
        supported_features=supported(context.version),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=FINALIZED,
    )


def unsupported_api_versions() -> ApiVersionsResponse:
    """Return the response to a version of ApiVersions that is not served.

    It is encoded as v0.
    """
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[row for row in _ADVERTISED if row.api_key == API_VERSIONS_KEY],
    )


_ROWS = (
    Served(
        api=produce_schema.API,
        handle=produce.produce,
        changes=True,
        is_barrier=produce.must_prepare,
        carries_records=True,
    ),
    Served(api=fetch_schema.API, handle=fetch.fetch, reads=fetch.answer_bytes_max),
    Served(api=list_offsets_schema.API, handle=list_offsets.list_offsets, walks=True),
    Served(
        api=metadata_schema.API,
        handle=metadata.metadata,
        is_barrier=metadata.may_create_topics,
        walks=True,
    ),
    Served(api=offset_commit.API, handle=committed_offsets.offset_commit, changes=True),
    Served(api=offset_fetch.API, handle=committed_offsets.offset_fetch, walks=True),
    Served(api=find_coordinator.API, handle=membership.find_coordinator),
    Served(api=join_group.API, handle=membership.join_group),
    Served(api=heartbeat.API, handle=membership.heartbeat),
    Served(api=leave_group.API, handle=membership.leave_group),
    Served(api=sync_group.API, handle=membership.sync_group),
    Served(api=describe_groups.API, handle=groups.describe_groups, walks=True),
    Served(api=list_groups.API, handle=groups.list_groups, walks=True),
    Served(api=consumer_group_heartbeat.API, handle=consumer_groups.consumer_group_heartbeat),
    Served(api=consumer_group_describe.API, handle=consumer_groups.consumer_group_describe, walks=True),
    Served(api=share_group_heartbeat.API, handle=share_groups.share_group_heartbeat),
    Served(api=share_group_describe.API, handle=share_groups.share_group_describe, walks=True),
    Served(api=share_fetch_schema.API, handle=share_fetch.share_fetch, reads=share_fetch.answer_bytes_max),
    Served(api=share_acknowledge.API, handle=share_fetch.share_acknowledge, changes=True),
    Served(
        api=describe_share_group_offsets.API, handle=share_groups.describe_share_group_offsets, walks=True
    ),
    Served(
        api=alter_share_group_offsets.API,
        handle=share_groups.alter_share_group_offsets,
        changes=True,
        is_barrier=_always,
    ),
    Served(
        api=delete_share_group_offsets.API,
        handle=share_groups.delete_share_group_offsets,
        changes=True,
        is_barrier=_always,
    ),
    Served(api=api_versions.API, handle=_answer_api_versions),
    Served(api=create_topics.API, handle=topics.create_topics, changes=True, is_barrier=_always),
    Served(api=delete_topics.API, handle=topics.delete_topics, changes=True, is_barrier=_always),
    Served(api=delete_records.API, handle=topics.delete_records, changes=True, is_barrier=_always),
    Served(api=init_producer_id.API, handle=producers.init_producer_id, changes=True, is_barrier=_always),
    # One after the other: a client may send the next without the answer to the one before.
    Served(
        api=add_partitions_to_txn.API,
        handle=transactions.add_partitions_to_txn,
        changes=True,
        is_barrier=_always,
    ),
    Served(
        api=add_offsets_to_txn.API, handle=transactions.add_offsets_to_txn, changes=True, is_barrier=_always
    ),
    Served(api=end_txn.API, handle=transactions.end_txn, changes=True, is_barrier=_always),
    Served(
        api=txn_offset_commit.API, handle=transactions.txn_offset_commit, changes=True, is_barrier=_always
    ),
    Served(
        api=write_txn_markers.API,
        handle=transaction_admin.write_txn_markers,
        changes=True,
        is_barrier=_always,
    ),
    Served(api=describe_transactions.API, handle=transaction_admin.describe_transactions, walks=True),
    Served(api=list_transactions.API, handle=transaction_admin.list_transactions, walks=True),
    Served(api=offset_for_leader_epoch.API, handle=leader_epoch.offset_for_leader_epoch, walks=True),
    Served(api=describe_configs.API, handle=configs.describe_configs, walks=True, is_long=configs.is_long),
    Served(api=alter_configs.API, handle=configs.alter_configs, changes=True, is_barrier=_always),
    Served(api=describe_log_dirs.API, handle=log_dirs.describe_log_dirs, walks=True),
    Served(api=create_partitions.API, handle=topics.create_partitions, changes=True, is_barrier=_always),
    Served(api=delete_groups.API, handle=groups.delete_groups, changes=True),
    Served(
        api=incremental_alter_configs.API,
        handle=configs.incremental_alter_configs,
        changes=True,
        is_barrier=_always,
    ),
    Served(api=offset_delete.API, handle=committed_offsets.offset_delete, changes=True),
    Served(api=describe_cluster.API, handle=metadata.describe_cluster),
    Served(api=describe_producers.API, handle=producers.describe_producers, walks=True),
    Served(api=describe_topic_partitions.API, handle=metadata.describe_topic_partitions, walks=True),
    # APIs of clusters, as a cluster of one broker answers them.
    Served(api=alter_replica_log_dirs.API, handle=log_dirs.alter_replica_log_dirs, walks=True),
    Served(api=elect_leaders.API, handle=cluster.elect_leaders, walks=True),
    Served(api=alter_partition_reassignments.API, handle=cluster.alter_partition_reassignments, walks=True),
    Served(api=list_partition_reassignments.API, handle=cluster.list_partition_reassignments),
    Served(api=describe_quorum.API, handle=cluster.describe_quorum),
    Served(api=update_features.API, handle=cluster.update_features),
    Served(api=unregister_broker.API, handle=cluster.unregister_broker),
    Served(api=list_config_resources.API, handle=cluster.list_config_resources),
    Served(api=add_raft_voter.API, handle=cluster.add_raft_voter),
    Served(api=remove_raft_voter.API, handle=cluster.remove_raft_voter),
    Served(api=describe_user_scram_credentials.API, handle=users.describe_user_scram_credentials),
    Served(
        api=alter_user_scram_credentials.API,
        handle=users.alter_user_scram_credentials,
        changes=True,
        is_barrier=_always,
    ),
    # A connection answers these two itself where clients can log in (``sasl_session``).
    Served(api=sasl_handshake.API, handle=security.sasl_handshake),
    Served(api=sasl_authenticate.API, handle=security.sasl_authenticate),
    Served(api=describe_client_quotas.API, handle=quotas.describe_client_quotas),
    Served(api=alter_client_quotas.API, handle=quotas.alter_client_quotas, changes=True, is_barrier=_always),
    Served(api=describe_acls.API, handle=acls.describe_acls),
    Served(api=create_acls.API, handle=acls.create_acls, changes=True, is_barrier=_always),
    Served(api=delete_acls.API, handle=acls.delete_acls, changes=True, is_barrier=_always),
    # The broker has no delegation tokens.
    Served(api=create_delegation_token.API, handle=security.create_delegation_token),
    Served(api=renew_delegation_token.API, handle=security.renew_delegation_token),
    Served(api=expire_delegation_token.API, handle=security.expire_delegation_token),
    Served(api=describe_delegation_token.API, handle=security.describe_delegation_token),
    # Not served: each is refused with the error code that its clients look for.
    Served(api=streams_group_heartbeat.API, handle=not_served.streams_group_heartbeat),
    Served(api=streams_group_describe.API, handle=not_served.streams_group_describe),
)

# Their handlers look for topics in a way of their own, or name topics that no client creates.
_LOOK_THEMSELVES = frozenset(
    (
        produce_schema.API.key,
        fetch_schema.API.key,
        share_fetch_schema.API.key,
        share_group_heartbeat.API.key,
        metadata_schema.API.key,
        describe_topic_partitions.API.key,
        create_topics.API.key,
        add_partitions_to_txn.API.key,
        txn_offset_commit.API.key,
        describe_quorum.API.key,
    )
)
SERVED = {
    row.api.key: row
    if row.api.key in _LOOK_THEMSELVES or not names_topics(row.api.request)
    else replace(row, handle=looking_for_topics(row.handle))
    for row in _ROWS
}
API_VERSIONS_KEY = api_versions.API.key
_ADVERTISED = [
    ApiVersion(api_key=row.api.key, min_version=row.api.versions[0], max_version=row.api.versions[1])
    for row in sorted(_ROWS, key=lambda row: row.api.key)
]
