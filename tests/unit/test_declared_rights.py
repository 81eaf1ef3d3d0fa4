"""Everything that the listeners serve declares the rights it needs; something new must, too."""

from __future__ import annotations

from pathlib import Path

from fastapi.routing import APIRoute
from stele.wire import messages as m

from app.api.guarded_route import GuardedRoute, needs_of
from app.api.rights import NEEDS
from app.clock import SystemClock
from app.tcp.binary.dispatch import HANDLERS
from app.tcp.binary.guards import GUARDS as BINARY_GUARDS
from app.tcp.kafka.apis import SERVED
from tests.support.http_application import application, routes_of

# They show no names, no records and no numbers of the broker.
OPEN_ROUTES = {
    "/v1/cluster", "/healthz", "/readyz", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/",
    "/console/topics", "/console/messages", "/console/produce", "/console/schemas", "/console/mirrors", "/console/tables", "/console/cdc", "/console/groups",
    "/console/storage", "/console/transactions", "/console/sql", "/console/access", "/console/static/{version}/{name}", "/console/login", "/console/logout",
}  # fmt: skip
# Open routes that only brokers with shared storage serve.
CLUSTER_ROUTES = {("GET", "/console/cluster")}
# Where the HTTP listener is, which every client that may connect can find out.
OPEN_MESSAGES: set[type[m.Request]] = {m.HttpListenerRequest}
# Needed before a login, needed to find the brokers, or refused to every client.
OPEN_APIS = {
    "ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster", "CreateDelegationToken",
    "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
}  # fmt: skip
# The rights of Apache Kafka, by the table "Operations and Resources on Protocols" of its documentation, and what its
# handlers check besides. With CREATE also what a write or a look at a topic may create.
KAFKA_RIGHTS = {
    "Produce": "WRITE TOPIC, WRITE TRANSACTIONAL_ID, CREATE TOPIC, CREATE CLUSTER",
    "Fetch": "READ TOPIC",
    "ListOffsets": "DESCRIBE TOPIC",
    "Metadata": "DESCRIBE TOPIC, CREATE TOPIC, CREATE CLUSTER",
    "OffsetCommit": "READ GROUP, READ TOPIC",
    "OffsetFetch": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "FindCoordinator": "DESCRIBE GROUP, DESCRIBE TRANSACTIONAL_ID",
    "JoinGroup": "READ GROUP",
    "Heartbeat": "READ GROUP",
    "LeaveGroup": "READ GROUP",
    "SyncGroup": "READ GROUP",
    "DescribeGroups": "DESCRIBE GROUP",
    "ListGroups": "DESCRIBE CLUSTER, DESCRIBE GROUP",
    "CreateTopics": "CREATE CLUSTER, CREATE TOPIC, DESCRIBE_CONFIGS TOPIC",
    "DeleteTopics": "DELETE TOPIC, DESCRIBE TOPIC",
    "DeleteRecords": "DELETE TOPIC",
    # Since KIP-679 the right to write to any topic suffices.
    "InitProducerId": "WRITE TRANSACTIONAL_ID, IDEMPOTENT_WRITE CLUSTER, WRITE TOPIC",
    "OffsetForLeaderEpoch": "DESCRIBE TOPIC",
    "AddPartitionsToTxn": "WRITE TRANSACTIONAL_ID, WRITE TOPIC",
    "AddOffsetsToTxn": "WRITE TRANSACTIONAL_ID, READ GROUP",
    "EndTxn": "WRITE TRANSACTIONAL_ID",
    "WriteTxnMarkers": "ALTER CLUSTER, CLUSTER_ACTION CLUSTER",
    "TxnOffsetCommit": "WRITE TRANSACTIONAL_ID, READ GROUP, READ TOPIC",
    "DescribeAcls": "DESCRIBE CLUSTER",
    "CreateAcls": "ALTER CLUSTER",
    "DeleteAcls": "ALTER CLUSTER",
    "DescribeConfigs": "DESCRIBE_CONFIGS CLUSTER, DESCRIBE_CONFIGS GROUP, DESCRIBE_CONFIGS TOPIC",
    "AlterConfigs": "ALTER_CONFIGS CLUSTER, ALTER_CONFIGS GROUP, ALTER_CONFIGS TOPIC",
    "IncrementalAlterConfigs": "ALTER_CONFIGS CLUSTER, ALTER_CONFIGS GROUP, ALTER_CONFIGS TOPIC",
    "ListConfigResources": "DESCRIBE_CONFIGS CLUSTER",
    "AlterReplicaLogDirs": "ALTER CLUSTER",
    "DescribeLogDirs": "DESCRIBE CLUSTER",
    "CreatePartitions": "ALTER TOPIC",
    "DeleteGroups": "DELETE GROUP",
    "OffsetDelete": "DELETE GROUP, READ TOPIC",
    "ElectLeaders": "ALTER CLUSTER",
    "AlterPartitionReassignments": "ALTER CLUSTER",
    "ListPartitionReassignments": "DESCRIBE CLUSTER",
    "DescribeClientQuotas": "DESCRIBE_CONFIGS CLUSTER",
    "AlterClientQuotas": "ALTER_CONFIGS CLUSTER",
    "DescribeUserScramCredentials": "DESCRIBE CLUSTER",
    "AlterUserScramCredentials": "ALTER CLUSTER",
    "DescribeQuorum": "DESCRIBE CLUSTER",
    "UpdateFeatures": "ALTER CLUSTER",
    "UnregisterBroker": "ALTER CLUSTER",
    "AddRaftVoter": "ALTER CLUSTER",
    "RemoveRaftVoter": "ALTER CLUSTER",
    "DescribeProducers": "READ TOPIC",
    "DescribeTransactions": "DESCRIBE TRANSACTIONAL_ID, DESCRIBE TOPIC",
    "ListTransactions": "DESCRIBE TRANSACTIONAL_ID",
    "DescribeTopicPartitions": "DESCRIBE TOPIC",
    "ConsumerGroupHeartbeat": "READ GROUP, DESCRIBE TOPIC",
    "ConsumerGroupDescribe": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "ShareGroupHeartbeat": "READ GROUP, DESCRIBE TOPIC",
    "ShareGroupDescribe": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "ShareFetch": "READ GROUP, READ TOPIC",
    "ShareAcknowledge": "READ GROUP, READ TOPIC",
    "DescribeShareGroupOffsets": "DESCRIBE GROUP, DESCRIBE TOPIC",
    "AlterShareGroupOffsets": "READ GROUP, READ TOPIC",
    "DeleteShareGroupOffsets": "DELETE GROUP, READ TOPIC",
    "StreamsGroupHeartbeat": "",
    "StreamsGroupDescribe": "DESCRIBE GROUP",
    **dict.fromkeys(OPEN_APIS, ""),
}


async def test_every_route_declares_its_rights(tmp_path: Path) -> None:
    async with application(tmp_path, SystemClock(), has_login=True) as app:
        routes = routes_of(app)
    assert len(routes) > 50
    declared = {
        (route.path, frozenset(route.methods or ())): needs_of(route.methods, route.path) for route in routes
    }
    assert [key for key, needs in declared.items() if needs is None] == []
    assert {path for (path, _), needs in declared.items() if needs == ()} == OPEN_ROUTES
    # A declaration of a route that does not exist may be a mistake in its path.
    served = {
        (method, route.path) for route in routes for method in (route.methods or ()) if method != "HEAD"
    }
    assert set(NEEDS) == served | CLUSTER_ROUTES
    assert not served & CLUSTER_ROUTES


async def test_every_route_is_checked(tmp_path: Path) -> None:
    async with application(tmp_path, SystemClock(), has_login=True) as app:
        for route in routes_of(app):
            is_wrapped = getattr(route.app, "__qualname__", "").startswith("guarded_app")
            assert isinstance(route, GuardedRoute) or is_wrapped, route.path
            if isinstance(route, APIRoute) and route.path.startswith("/v1/"):
                assert isinstance(route, GuardedRoute), route.path


def test_every_api_of_the_kafka_listener_declares_the_rights_of_apache_kafka() -> None:
    """Kafka itself asked for a wrong right (CVE-2026-41115). Other tests try the declared ones."""
    declared = {row.api.name: sorted(map(repr, row.guard.rights)) for row in SERVED.values()}
    assert declared == {name: sorted(filter(None, text.split(", "))) for name, text in KAFKA_RIGHTS.items()}


def test_every_message_of_the_binary_listener_declares_its_rights() -> None:
    # PRODUCE of ADR-0009 has no handler: it arrives in runs, which the connection checks.
    assert set(BINARY_GUARDS) == {*HANDLERS, m.ProduceRequest}
    assert {kind for kind, guard in BINARY_GUARDS.items() if not guard.rights} == OPEN_MESSAGES
