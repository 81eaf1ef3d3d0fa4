"""What brokers share in PostgreSQL answers as the files of a broker on its own do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import psycopg
import pytest

from app.cluster.acls import AclRecord, AclStore
from app.cluster.catalog import Catalog, ConfigRecord, TopicRecord
from app.cluster.consumer_group_store import (
    ConsumerMember,
    ConsumerMemberRecord,
    DeleteConsumerGroup,
    DeleteConsumerMember,
    MemberProtocol,
)
from app.cluster.credentials import ApiKeyRecord, CredentialStore, ScramRecord
from app.cluster.database import ChangeKind
from app.cluster.group_shards import SHARDS, lease_of_group, lease_of_shard, shard_of
from app.cluster.group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteOwner,
    DeleteTopicOffsets,
    EndPendingOffsets,
    GroupRecord,
    MemberRecord,
    OffsetRecord,
    OwnerRecord,
    PendingOffset,
    StoreChange,
    StoredGroups,
)
from app.cluster.membership import Displaced, Member, MemberEndpoint
from app.cluster.postgres.catalog import PostgresCatalog
from app.cluster.postgres.database import PostgresDatabase, read_versions
from app.cluster.postgres.groups import PostgresGroupStore
from app.cluster.postgres.membership import PostgresMembership
from app.cluster.postgres.sqlite_import import import_data_dir
from app.cluster.share_group_store import DeleteSharePartitions, SharePartitionRecord, StoredRecords
from app.cluster.sqlite.catalog import CatalogDatabase, SqliteCatalog
from app.cluster.sqlite.groups import SqliteGroupStore
from app.cluster.transaction_store import DeleteTransaction
from app.errors import CoordinatorFenced, InvalidRequest, StorageUnavailable
from app.postgres.connector import Connection, Connector, connection_string
from app.postgres.session import PostgresSession
from load.postgres_server import PostgresServer
from tests.support.waiting import eventually
from tests.unit.cluster.test_named_producers import begin
from tests.unit.cluster.test_sqlite_consumer_groups import MEMBER as CONSUMER_MEMBER
from tests.unit.cluster.test_sqlite_consumer_groups import RECORD as CONSUMER_GROUP

NUL_AND_OMEGA = "client\0 Ω"


@pytest.fixture
def session(server: PostgresServer, schema: str) -> Iterator[PostgresSession]:
    opened = PostgresSession(Connector(server.dsn, schema=schema))
    opened.migrate()
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgres"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    opened: Catalog = (
        SqliteCatalog(tmp_path / "catalog.db")
        if request.param == "sqlite"
        else PostgresCatalog(PostgresDatabase(request.getfixturevalue("session")))
    )
    yield opened
    opened.close()


def topic(name: str, partitions: int = 2, **configs: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=uuid4(), partitions=partitions, configs=configs)


def test_topics_are_created_once_altered_and_deleted(catalog: Catalog) -> None:
    orders, other = topic("orders", 3, **{"retention.ms": "5"}), topic("a.b")
    assert catalog.create_topic(orders)
    assert catalog.create_topic(other)
    assert not catalog.create_topic(topic("orders"))
    assert catalog.topics() == [other, orders]
    grown = TopicRecord(name="orders", topic_id=orders.topic_id, partitions=5, configs={})
    assert catalog.update_topic(grown, previous=orders)
    assert catalog.topics() == [other, grown]
    assert catalog.delete_topic(orders.topic_id)
    assert not catalog.delete_topic(orders.topic_id)
    assert not catalog.update_topic(grown)
    assert catalog.topics() == [other]


def test_configurations_are_replaced_and_removed(catalog: Catalog) -> None:
    group = ConfigRecord(kind="group", entity=NUL_AND_OMEGA, configs={"a": "\0", "b": "Ω"})
    catalog.set_configs(group)
    catalog.set_configs(ConfigRecord(kind="broker", entity="", configs={"x": "1"}))
    catalog.set_configs(ConfigRecord(kind="broker", entity="", configs={"x": "2"}))
    assert catalog.configs() == [ConfigRecord(kind="broker", entity="", configs={"x": "2"}), group]
    catalog.set_configs(ConfigRecord(kind="group", entity=NUL_AND_OMEGA, configs={}))
    assert [record.kind for record in catalog.configs()] == ["broker"]


def test_ids_are_never_given_twice(catalog: Catalog) -> None:
    cluster_id = catalog.cluster_id()
    assert len(cluster_id) == 22
    assert catalog.cluster_id() == cluster_id
    assert [catalog.next_producer_id_block(size) for size in (1000, 1, 1000)] == [1, 1001, 1002]


def test_named_producers_have_a_version_and_an_epoch(catalog: Catalog) -> None:
    assert begin(catalog, 5, fresh_id=1, now_ms=10) == (5, 1, 0, False)
    assert begin(catalog, 5, fresh_id=2) == (5, 1, 0, True)
    assert begin(catalog, 9, fresh_id=3, now_ms=20) == (9, 1, 1, False)
    assert begin(catalog, 5, fresh_id=4) == (9, 1, 1, True)
    assert begin(catalog, 0, fresh_id=5, name=NUL_AND_OMEGA, now_ms=5) == (0, 5, 0, False)
    assert catalog.named_epochs() == {1: 1, 5: 0}
    # A catalog in PostgreSQL has a clock of its own.
    assert catalog.forget_named_producers(now_ms=20, kept_ms=60_000, last_uses={}) == []
    assert catalog.named_epochs() == {1: 1, 5: 0}
    assert sorted(catalog.forget_named_producers(now_ms=10**15, kept_ms=-60_000, last_uses={})) == [1, 5]
    assert catalog.named_epochs() == {}


def test_a_topic_that_another_broker_changed_is_not_overwritten(catalog: Catalog) -> None:
    before = topic("orders")
    catalog.create_topic(before)
    after = TopicRecord(name="orders", topic_id=before.topic_id, partitions=2, configs={"retention.ms": "9"})
    assert catalog.update_topic(after, previous=before)
    late = TopicRecord(name="orders", topic_id=before.topic_id, partitions=4, configs={})
    assert not catalog.update_topic(late, previous=before)
    # A call whose answer was lost is repeated.
    assert catalog.update_topic(after, previous=before)
    assert catalog.topics() == [after]


def test_a_topic_and_its_logs_are_created_grown_and_deleted_together(
    session: PostgresSession, server: PostgresServer, schema: str
) -> None:
    catalog, orders = PostgresCatalog(PostgresDatabase(session)), topic("orders")
    catalog.create_topic(orders)
    assert catalog.create_topic(orders), "a repeated call"
    catalog.update_topic(TopicRecord(name="orders", topic_id=orders.topic_id, partitions=3, configs={}))
    parts = f"SELECT part, deleted_at IS NULL FROM {schema}.logs ORDER BY part"
    assert server.run(parts) == [(0, True), (1, True), (2, True)]
    catalog.delete_topic(orders.topic_id)
    assert server.run(parts) == [(0, False), (1, False), (2, False)]


def test_each_change_raises_the_version_of_its_kind(session: PostgresSession) -> None:
    catalog = PostgresCatalog(PostgresDatabase(session))
    changes: dict[ChangeKind, Callable[[], object]] = {
        ChangeKind.TOPICS: lambda: catalog.create_topic(topic("orders")),
        ChangeKind.CONFIGS: lambda: catalog.set_configs(
            ConfigRecord(kind="broker", entity="", configs={"x": "1"})
        ),
        ChangeKind.CREDENTIALS: lambda: CredentialStore(PostgresDatabase(session)).change_scram(
            (), (), password_of="a"
        ),
        ChangeKind.ACLS: lambda: AclStore(PostgresDatabase(session)).change_acls((), ()),
    }
    for kind, change in changes.items():
        before = session.run(read_versions)
        change()
        assert session.run(read_versions) == {**before, kind: before[kind] + 1}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_users_and_keys_are_kept(kind: str, session: PostgresSession, tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    store = CredentialStore(CatalogDatabase(path) if kind == "sqlite" else PostgresDatabase(session))
    assert len(store.secret()) == 32
    assert store.secret() == store.secret()
    scram = [
        ScramRecord(
            user=user, mechanism=mechanism, salt=b"\0s", stored_key=b"k", server_key=b"v", iterations=4096
        )
        for user in ("alice", "Ω")
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    store.change_scram(scram, ())
    assert store.scram_records() == scram
    store.change_scram(scram[1:2], (("Ω", "SCRAM-SHA-256"),), password_of="alice")
    assert store.scram_records() == [scram[1], scram[3]]
    key = ApiKeyRecord(
        key_id="k1",
        digest=b"\0" * 32,
        principal="User:Ω",
        description="",
        created_at_ms=1,
        expires_at_ms=None,
    )
    store.add_api_key(key)
    assert store.api_keys() == [key]
    assert store.delete_api_key("k1")
    assert not store.delete_api_key("k1")
    store.close()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_access_rules_are_kept(kind: str, session: PostgresSession, tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    store = AclStore(CatalogDatabase(path) if kind == "sqlite" else PostgresDatabase(session))
    rules = [AclRecord(2, 3, name, "User:alice", "*", 3, 3) for name in ("a", NUL_AND_OMEGA)]
    store.change_acls(rules, ())
    store.change_acls(rules[:1], ())
    assert store.acls() == rules
    store.change_acls((), rules[:1])
    assert store.acls() == rules[1:]
    store.close()


# ── groups ──


def group(name: str, *member_ids: str, owners: tuple[OwnerRecord, ...] = ()) -> GroupRecord:
    return GroupRecord(
        group=name,
        generation=3,
        protocol_type="consumer",
        protocol_name=None,
        leader=member_ids[0] if member_ids else None,
        emptied_at_ms=None if member_ids else 1_767_225_600_000,
        members=tuple(
            MemberRecord(
                member_id=member_id,
                instance_id=None,
                client_id=NUL_AND_OMEGA,
                client_host="::1",
                session_timeout_ms=6_000,
                rebalance_timeout_ms=60_000,
                protocols=(MemberProtocol("z", b"\0\xff"), MemberProtocol("a", b"")),
                assignment=b"\0" * 9,
                is_managed=member_id == "managed",
            )
            for member_id in member_ids
        ),
        owners=owners,
    )


def offset(of: str, partition: int, value: int, topic_id: UUID, topic: str = "orders") -> OffsetRecord:
    return OffsetRecord(
        group=of,
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        offset=value,
        leader_epoch=-1,
        metadata="\0Ω",
        committed_at_ms=1_767_225_600_000,
        expires_at_ms=None if partition else 2**63 - 1,
    )


def share_state(of: str, topic_id: UUID, partition: int, *records: StoredRecords) -> SharePartitionRecord:
    return SharePartitionRecord(
        group=of,
        topic="orders",
        topic_id=topic_id,
        partition=partition,
        state_epoch=1,
        start_offset=2**40,
        records=records,
    )


def member_of(broker_id: int) -> Member:
    return Member(
        broker_id=broker_id,
        incarnation=uuid4(),
        rack="r1",
        endpoints={"kafka": MemberEndpoint("127.0.0.1", 9092)},
    )


class AllShards:
    """The stores of all shards as one, at a broker that has all leases."""

    def __init__(self, session: PostgresSession, membership: PostgresMembership, own: Member) -> None:
        self._stores = [
            PostgresGroupStore(session, shard=shard, incarnation=own.incarnation) for shard in range(SHARDS)
        ]
        for shard, store in enumerate(self._stores):
            epoch = membership.acquire(lease_of_shard(shard), own)
            assert epoch == 1
            store.take(epoch)

    def write(self, changes: Sequence[StoreChange]) -> None:
        for change in changes:
            if isinstance(change, DeleteTopicOffsets):
                for store in self._stores:
                    store.write([change])
            else:
                self._stores[shard_of(cast("Any", change).group)].write([change])

    def open(self) -> StoredGroups:
        opened = [store.open() for store in self._stores]
        return StoredGroups(
            epoch=1,
            groups=sorted((one for part in opened for one in part.groups), key=lambda one: one.group),
            offsets=sorted(
                (one for part in opened for one in part.offsets),
                key=lambda one: (one.group, one.topic, one.partition),
            ),
            consumer_groups=sorted(
                (one for part in opened for one in part.consumer_groups), key=lambda one: one.record.group
            ),
            share_partitions=[one for part in opened for one in part.share_partitions],
        )


def test_both_group_stores_keep_the_same_after_the_same_changes(
    session: PostgresSession, tmp_path: Path
) -> None:
    old_id, new_id = uuid4(), uuid4()
    owner = OwnerRecord(group=NUL_AND_OMEGA, topic="orders", partition=0, member_id="managed")
    rounds: list[list[StoreChange]] = [
        [group(NUL_AND_OMEGA, "m2", "managed", owners=(owner,)), group("empty"), group("h", "m")],
        [offset(NUL_AND_OMEGA, p, p, old_id) for p in range(3)],
        [offset("simple", 0, 2**63 - 1, new_id), offset("h", 1, 1, new_id, "payments")],
        [
            OwnerRecord(group="h", topic="orders", partition=7, member_id="m"),
            offset(NUL_AND_OMEGA, 1, 9, old_id),
        ],
        [DeleteOwner(group=NUL_AND_OMEGA, topic="orders", partition=0), group("h", "m3")],
        [DeleteOffset(group=NUL_AND_OMEGA, topic="orders", partition=2), DeleteGroup(group="empty")],
        [DeleteTopicOffsets(topic="orders", besides=new_id), DeleteGroup(group="no such group")],
        [
            offset("h", 1, 4, new_id, "payments"),
            DeleteGroup(group="h"),
            offset("h", 2, 4, new_id, "payments"),
        ],
    ]
    with_members: list[StoreChange] = [
        CONSUMER_GROUP,
        ConsumerMemberRecord(group="g", member=CONSUMER_MEMBER),
        ConsumerMemberRecord(group="g", member=ConsumerMember(member_id="m2")),
    ]
    of_consumers: list[list[StoreChange]] = [
        with_members,
        [DeleteConsumerMember(group="g", member_id="m1")],
        [group("g", "m")],
        with_members,
        [DeleteConsumerGroup(group="g")],
        [*with_members, DeleteGroup(group="g")],
        with_members,
    ]
    rounds += of_consumers
    of_queues: list[list[StoreChange]] = [
        [share_state("q", old_id, 0), share_state("q", new_id, 1), share_state(NUL_AND_OMEGA, old_id, 2)],
        [share_state("q", old_id, 0, StoredRecords(5, 6, 2, 0), StoredRecords(7, 2**40, 0, 3))],
        [DeleteSharePartitions(group="q", topic_id=new_id)],
        [DeleteTopicOffsets(topic="orders", besides=new_id)],
        [share_state("q", new_id, 1), share_state("r", new_id, 1), share_state("s", new_id, 0)],
        [DeleteSharePartitions(group="r", topic_id=None), DeleteGroup(group="s")],
    ]
    rounds += of_queues
    own = member_of(1)
    membership = PostgresMembership(session)
    membership.register(own)
    shared = AllShards(session, membership, own)
    embedded = SqliteGroupStore(tmp_path / "groups.sqlite")
    embedded.open()
    for changes in rounds:
        embedded.write(changes)
        shared.write(changes)
        ours, theirs = shared.open(), SqliteGroupStore(tmp_path / "groups.sqlite").open()
        embedded.close()
        embedded = SqliteGroupStore(tmp_path / "groups.sqlite")
        embedded.open()
        assert list(ours.groups) == list(theirs.groups)
        assert list(ours.offsets) == list(theirs.offsets)
        assert list(ours.consumer_groups) == list(theirs.consumer_groups)
        assert sorted(ours.share_partitions, key=str) == sorted(theirs.share_partitions, key=str)
    assert [record.group for record in shared.open().offsets] == ["h", "simple"]
    assert [record.group for record in shared.open().share_partitions] == ["q"]
    embedded.close()


def test_only_the_holder_of_the_lease_writes_groups(session: PostgresSession) -> None:
    first, second = member_of(1), member_of(2)
    membership = PostgresMembership(session)
    stores = [
        PostgresGroupStore(session, shard=shard_of("g"), incarnation=m.incarnation) for m in (first, second)
    ]
    lease = lease_of_group("g")
    for member in (first, second):
        assert membership.register(member)
    assert membership.acquire(lease, first) == 1
    assert membership.acquire(lease, second) is None
    assert membership.acquire(lease, first) == 1, "a lease of its own"
    assert membership.renew([lease], first) == {lease: 1}
    assert membership.renew([lease], second) == {}
    stores[0].take(1)
    stores[0].write([offset("g", 0, 1, UUID(int=7))])
    membership.leave(first)
    assert membership.acquire(lease, second) == 2
    stores[1].take(2)
    assert [record.offset for record in stores[1].open().offsets] == [1]
    with pytest.raises(CoordinatorFenced) as fenced:
        stores[0].write([offset("g", 0, 2, UUID(int=7))])
    assert (fenced.value.epoch, fenced.value.current_epoch) == (1, 2)
    with pytest.raises(InvalidRequest, match="shared storage"):
        # Transactional ids belong to no shard.
        stores[1].write([DeleteTransaction(transactional_id="t")])
    assert [record.offset for record in stores[1].open().offsets] == [1]


def test_what_is_deleted_is_told_to_later_coordinators_for_a_day(session: PostgresSession) -> None:
    member, topic_id = member_of(1), UUID(int=7)
    membership = PostgresMembership(session)
    assert membership.register(member)
    shards = {name: shard_of(name) for name in ("g", "classic")}
    stores = {
        name: PostgresGroupStore(session, shard=shard, incarnation=member.incarnation)
        for name, shard in shards.items()
    }
    for name, store in stores.items():
        epoch = membership.acquire(lease_of_group(name), member)
        assert epoch is not None
        store.take(epoch)
    store = stores["g"]
    store.write([group("g", "m"), *(offset("g", part, 1, topic_id) for part in range(3))])
    store.write([group("g", "m", "n")])
    assert store.deletions() == [], "a record that is replaced is not deleted"
    store.write([DeleteOffset(group="g", topic="orders", partition=1)])
    store.write([DeleteOffset(group="g", topic="orders", partition=9)])
    assert store.deletions() == [("g", "orders", 1)]
    store.write([DeleteGroup(group="g")])
    assert store.deletions()[0] == ("g", "orders", 1)
    assert sorted(store.deletions()[1:], key=str) == [
        ("g", "orders", 0),
        ("g", "orders", 2),
        ("g", None, -1),
    ]
    # Those of other shards are not among them.
    other = stores["classic"]
    other.write([group("classic", "m"), offset("classic", 0, 1, topic_id)])
    other.write([replace(CONSUMER_GROUP, group="classic")])
    assert other.deletions() == [("classic", None, -1)]
    other.write([DeleteTopicOffsets(topic="orders", besides=topic_id)])
    assert other.deletions() == [("classic", None, -1)]
    other.write([DeleteTopicOffsets(topic="orders", besides=None)])
    assert other.deletions() == [("classic", None, -1), ("classic", "orders", 0)]
    session.run(
        lambda connection: connection.execute(
            "UPDATE group_deletions SET deleted_at = now() - interval '25 hours' WHERE topic = 'orders'"
        )
    )
    assert other.deletions() == [("classic", None, -1)]
    # With the next deletion in the shard, whatever is deleted, those that are too old go.
    store.write([DeleteOffset(group="g", topic="orders", partition=9)])
    kept = session.run(
        lambda connection: connection.execute("SELECT count(*) FROM group_deletions").fetchone()
    )
    assert kept == (3,), "those of this shard are gone"


def test_pending_offsets_are_stored_while_their_transaction_is_open_and_settled_when_it_has_ended(
    server: PostgresServer, session: PostgresSession, schema: str
) -> None:
    member, membership = member_of(1), PostgresMembership(session)
    assert membership.register(member)
    assert membership.acquire(lease_of_group("g"), member) == 1
    store = PostgresGroupStore(session, shard=shard_of("g"), incarnation=member.incarnation)
    store.take(1)

    def begin_id(producer_id: int) -> None:
        server.run(
            f"INSERT INTO {schema}.transactional_ids VALUES ('t{producer_id}', {producer_id}, 0, -1, -1, 1000, 'Ongoing',"
            " 0, 0, '[]', '[]')"
        )

    def end(producer_id: int, outcome: str) -> None:
        server.run(
            f"UPDATE {schema}.transactional_ids SET state = 'Empty', epoch = 1 WHERE producer_id = {producer_id}"
        )
        server.run(
            f"UPDATE {schema}.group_pending_offsets SET outcome = {outcome} WHERE producer_id = {producer_id}"
        )

    def staged(producer_id: int, partition: int, position: int) -> PendingOffset:
        record = offset("g", partition, position, UUID(int=7))
        return PendingOffset(producer_id=producer_id, producer_epoch=0, record=record)

    for producer_id in (1, 2, 3):
        begin_id(producer_id)
    store.write([staged(1, 0, 10), staged(2, 0, 20), staged(2, 1, 21), staged(3, 2, 30), staged(4, 3, 40)])
    # That of producer 4 belongs to no transaction.
    assert {pending.producer_id for pending in store.open().pending} == {1, 2, 3}
    asked = [(1, 0), (2, 0), (3, 0), (4, 0)]
    assert store.ended_producers(asked) == [(4, False)]
    end(2, "true")
    end(3, "false")
    # What comes after the end is in no transaction.
    store.write([staged(2, 4, 50)])
    assert sorted(store.ended_producers(asked)) == [(2, True), (3, False), (4, False)]
    store.write([EndPendingOffsets(producer_id=2, is_committed=True)])
    store.write([EndPendingOffsets(producer_id=3, is_committed=False)])
    stored = store.open()
    # The offset that producer 1 wrote before for the same partition can no longer win.
    assert [(record.partition, record.offset) for record in stored.offsets] == [(0, 20), (1, 21)]
    assert stored.pending == []
    # A plain commit drops what is pending in its partition, and so does a deletion.
    store.write([staged(1, 0, 60), staged(1, 1, 61), staged(1, 2, 62)])
    store.write([offset("g", 0, 70, UUID(int=7)), DeleteOffset(group="g", topic="orders", partition=1)])
    assert [pending.record.partition for pending in store.open().pending] == [2]
    store.write([DeleteGroup(group="g")])
    assert (store.open().offsets, store.open().pending) == ([], [])


@pytest.mark.parametrize("partitions", [1, 40])
def test_all_pending_offsets_of_a_write_are_one_statement_in_their_order(
    server: PostgresServer, session: PostgresSession, schema: str, tmp_path: Path, partitions: int
) -> None:
    member, membership = member_of(1), PostgresMembership(session)
    assert membership.register(member)
    assert membership.acquire(lease_of_group("g"), member) == 1
    store = PostgresGroupStore(session, shard=shard_of("g"), incarnation=member.incarnation)
    store.take(1)
    for producer_id in (1, 2):
        server.run(
            f"INSERT INTO {schema}.transactional_ids VALUES ('t{producer_id}', {producer_id}, 0, -1, -1, 1000, 'Ongoing',"
            " 0, 0, '[]', '[]')"
        )

    def staged(producer_id: int, partition: int, position: int, *, epoch: int = 0) -> PendingOffset:
        record = offset("g", partition, position, UUID(int=7 + partition))
        expires_at_ms = None if partition % 2 else 10 + partition
        return PendingOffset(
            producer_id=producer_id,
            producer_epoch=epoch,
            record=replace(record, metadata=f"Ω {partition}\0", expires_at_ms=expires_at_ms),
        )

    first = [staged(1, partition, 100 + partition) for partition in range(partitions)]
    # One reads the lease, one locks the transactional ids.
    assert statements_of(session, lambda: store.write(first), tmp_path / "trace") == 3
    assert list(store.open().pending) == first
    # Of one producer the last counts; another one comes after it; an epoch that is over stores nothing.
    again = [staged(2, 0, 5), staged(1, 0, 6), staged(1, 0, 7), staged(2, 0, 8), staged(1, 0, 9, epoch=1)]
    assert statements_of(session, lambda: store.write(again), tmp_path / "trace") == 3
    assert list(store.open().pending) == [*first[1:], staged(1, 0, 7), staged(2, 0, 8)]
    # What comes between others keeps its place among them.
    store.write([staged(1, 0, 20), offset("g", 0, 21, UUID(int=7)), staged(2, 0, 22)])
    assert list(store.open().pending) == [*first[1:], staged(2, 0, 22)]
    assert [record.offset for record in store.open().offsets] == [21]


def statements_of(session: PostgresSession, work: Callable[[], None], path: Path) -> int:
    """Return how many statements the session executes for ``work``, without BEGIN and COMMIT."""
    with path.open("wb") as file:
        session.run(lambda connection: connection.pgconn.trace(file.fileno()))
        work()
        session.run(lambda connection: connection.pgconn.untrace())
    return path.read_text(errors="replace").count("\tExecute\t")


# ── membership ──


def test_a_dead_broker_keeps_no_locks_even_if_it_was_paused_within_a_pipeline(
    server: PostgresServer, session: PostgresSession, schema: str
) -> None:
    membership, dead, live = PostgresMembership(session), member_of(1), member_of(2)
    assert membership.register(dead)
    assert membership.register(live)
    server.run(f"UPDATE {schema}.brokers SET seen = now() - interval '10 s' WHERE broker_id = 1")
    paused, busy = [
        psycopg.connect(connection_string(server.dsn, schema, member.incarnation), autocommit=True)
        for member in (dead, live)
    ]
    # Without a Sync message, PostgreSQL does not call the session idle in a transaction.
    with busy, busy.pipeline():
        busy.execute("BEGIN")
        assert busy.execute("SELECT pg_advisory_xact_lock(2)").fetchone()
        with paused, suppress(psycopg.OperationalError), paused.pipeline():
            paused.execute("BEGIN")
            assert paused.execute("SELECT pg_advisory_xact_lock(1)").fetchone()

            def is_free() -> bool:
                membership.heartbeat(live)
                return not server.run("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 1")

            eventually(is_free, "the lock of the dead broker is free")
            with pytest.raises(psycopg.OperationalError):
                paused.execute("SELECT 1").fetchone()
        assert busy.execute("SELECT 1").fetchone() == (1,), "the transaction of a live broker goes on"


def test_a_broker_registers_again_when_an_incarnation_that_a_promoted_standby_knows_counts_as_dead(
    session: PostgresSession, server: PostgresServer, schema: str
) -> None:
    membership, earlier, now = PostgresMembership(session), member_of(1), member_of(1)
    assert membership.register(now)
    server.run(f"UPDATE {schema}.brokers SET incarnation = '{earlier.incarnation}', seen = now()")
    with pytest.raises(Displaced):
        membership.heartbeat(now)
    server.run(f"UPDATE {schema}.brokers SET seen = now() - interval '6 seconds'")
    membership.heartbeat(now)
    assert [member.incarnation for member in membership.look().members] == [now.incarnation]


def test_a_broker_id_belongs_to_one_live_broker(
    session: PostgresSession, server: PostgresServer, schema: str
) -> None:
    membership, first, second = PostgresMembership(session), member_of(1), member_of(1)
    assert membership.register(first)
    assert not membership.register(second)
    assert [member.incarnation for member in membership.look().members] == [first.incarnation]
    assert membership.register(second, previous=first.incarnation), "a restart that knows who it was"
    with pytest.raises(Displaced):
        membership.heartbeat(first)
    joined_ms = membership.look().members[0].started_at_ms
    server.run(
        f"UPDATE {schema}.brokers SET seen = now() - interval '6 seconds', started_at = started_at - interval '6 seconds'"
    )
    assert membership.look().members == ()
    membership.heartbeat(second)
    (shown,) = membership.look().members
    assert (shown.broker_id, shown.rack, shown.endpoints) == (1, "r1", second.endpoints)
    assert shown.started_at_ms >= joined_ms, "it has joined again"
    membership.heartbeat(second)
    assert membership.look().members == (shown,), "it was alive all the time"
    membership.leave(second)
    assert membership.look().members == ()
    membership.heartbeat(second)
    assert [member.broker_id for member in membership.look().members] == [1], "it was removed, and is back"


def test_the_lease_of_a_dead_broker_is_free(
    session: PostgresSession, server: PostgresServer, schema: str
) -> None:
    membership, first, second = PostgresMembership(session), member_of(1), member_of(2)
    membership.register(first)
    membership.register(second)
    assert membership.acquire("groups", first) == 1
    assert membership.look().leases["groups"].broker_id == 1
    server.run(f"UPDATE {schema}.brokers SET seen = now() - interval '6 seconds' WHERE broker_id = 1")
    assert membership.look().leases == {}
    assert membership.acquire("groups", second) == 2
    assert membership.acquire("groups", first) is None
    membership.release("groups", second)
    assert membership.acquire("groups", first) == 3


@pytest.mark.parametrize(("timeout_s", "alive_s", "dead_s"), [(2, 1, 3), (30, 20, 31)])
def test_a_broker_counts_as_dead_when_its_own_session_timeout_is_over(
    session: PostgresSession, server: PostgresServer, schema: str, timeout_s: int, alive_s: int, dead_s: int
) -> None:
    membership, other = PostgresMembership(session), member_of(2)
    own = replace(member_of(1), session_timeout_ms=timeout_s * 1000)
    for member in (own, other):
        assert membership.register(member)
    assert membership.acquire("groups", own) == 1
    lease = membership.look().leases["groups"]
    assert 0 <= own.lease_ms - lease.expires_in_ms < own.lease_ms / 2

    def last_seen(ago_s: int) -> None:
        server.run(f"UPDATE {schema}.brokers SET seen = now() - interval '{ago_s} s' WHERE broker_id = 1")

    last_seen(alive_s)
    first = membership.look().members[0]
    assert (first.incarnation, first.session_timeout_ms) == (own.incarnation, timeout_s * 1000)
    assert membership.acquire("groups", other) is None
    assert not membership.register(member_of(1)), "its id is taken"
    last_seen(dead_s)
    assert [member.broker_id for member in membership.look().members] == [2]
    assert membership.acquire("groups", other) == 2
    assert membership.register(member_of(1)), "its id is free"


# ── taking over a data directory ──


def test_the_files_of_a_broker_move_into_the_database_once(session: PostgresSession, tmp_path: Path) -> None:
    path, groups_path = tmp_path / "metadata.sqlite", tmp_path / "groups.sqlite"
    files, orders = SqliteCatalog(path), topic("orders", 3)
    cluster_id = files.cluster_id()
    files.create_topic(orders)
    of_group = ConfigRecord(kind="group", entity=NUL_AND_OMEGA, configs={"a": "b"})
    files.set_configs(of_group)
    begin(files, 5, fresh_id=files.next_producer_id_block(1000), now_ms=7)
    files.close()
    users = CredentialStore(CatalogDatabase(path))
    secret = users.secret()
    scram = ScramRecord(
        user="Ω", mechanism="SCRAM-SHA-256", salt=b"\0s", stored_key=b"k", server_key=b"v", iterations=4096
    )
    users.change_scram([scram], ())
    key = ApiKeyRecord(
        key_id="k1", digest=b"\0" * 32, principal="Ω", description="", created_at_ms=1, expires_at_ms=None
    )
    users.add_api_key(key)
    users.close()
    rules = AclStore(CatalogDatabase(path))
    rule = AclRecord(2, 3, NUL_AND_OMEGA, "User:alice", "*", 3, 3)
    rules.change_acls([rule], ())
    rules.close()
    store = SqliteGroupStore(groups_path)
    store.open()
    consumer = ConsumerMemberRecord(group=CONSUMER_GROUP.group, member=CONSUMER_MEMBER)
    store.write([group("classic", "m"), CONSUMER_GROUP, consumer, offset("g", 0, 5, orders.topic_id)])
    store.close()
    assert import_data_dir(session, path, groups_path)
    assert sorted(file.name for file in tmp_path.iterdir() if "moved" in file.name) == [
        "groups.sqlite.moved-to-postgresql",
        "metadata.sqlite.moved-to-postgresql",
    ]
    catalog = PostgresCatalog(PostgresDatabase(session))
    assert catalog.cluster_id() == cluster_id
    assert catalog.topics() == [orders]
    assert catalog.named_epochs() == {1: 0}
    assert catalog.next_producer_id_block(1) > 1000
    assert catalog.configs() == [of_group]
    users = CredentialStore(PostgresDatabase(session))
    assert (users.secret(), users.scram_records(), users.api_keys()) == (secret, [scram], [key])
    assert AclStore(PostgresDatabase(session)).acls() == [rule]
    own = member_of(1)
    PostgresMembership(session).register(own)
    shared = AllShards(session, PostgresMembership(session), own)
    stored = shared.open()
    assert ([record.group for record in stored.groups], [o.offset for o in stored.offsets]) == (
        ["classic"],
        [5],
    )
    assert [(one.record, list(one.members)) for one in stored.consumer_groups] == [
        (CONSUMER_GROUP, [CONSUMER_MEMBER])
    ]
    # A second broker's files are left alone.
    SqliteCatalog(path).close()
    assert not import_data_dir(session, path, groups_path)
    assert path.exists()
    assert catalog.topics() == [orders]


def test_a_directory_that_has_only_users_is_taken_over_once(session: PostgresSession, tmp_path: Path) -> None:
    path, groups_path = tmp_path / "metadata.sqlite", tmp_path / "groups.sqlite"
    for is_first in (True, False):
        users = CredentialStore(CatalogDatabase(path))
        users.secret()
        users.close()
        assert import_data_dir(session, path, groups_path) is is_first


# ── the session ──


def test_a_call_outlives_a_restart_of_the_database(server: PostgresServer, schema: str) -> None:
    session = PostgresSession(Connector(server.dsn, schema=schema), retry_s=30)
    session.migrate()
    catalog = PostgresCatalog(PostgresDatabase(session))
    catalog.create_topic(topic("before"))
    server.kill()
    started = threading.Thread(target=server.start)
    started.start()
    assert catalog.create_topic(topic("during"))
    started.join()
    assert [record.name for record in catalog.topics()] == ["before", "during"]
    session.close()


def test_a_call_is_repeated_whose_transaction_was_idle_for_too_long(
    server: PostgresServer, schema: str
) -> None:
    """As when the machine is so busy that the broker has no CPU for two seconds."""
    session = PostgresSession(Connector(server.dsn, schema=schema))
    backends: list[int] = []

    def work(connection: Connection) -> None:
        backends.append(connection.info.backend_pid)
        if len(backends) == 1:
            connection.execute("SET LOCAL idle_in_transaction_session_timeout = '1ms'")
            query = f"SELECT 1 FROM pg_stat_activity WHERE pid = {backends[0]}"
            eventually(lambda: not server.run(query), "the server ends the session")
        connection.execute("SELECT 1")

    session.run(work)
    assert len(set(backends)) == 2
    session.close()


def test_without_a_database_a_call_fails_with_a_reason() -> None:
    session = PostgresSession(Connector("postgresql://127.0.0.1:1/none"), retry_s=0)
    with pytest.raises(StorageUnavailable, match="try again"):
        PostgresCatalog(PostgresDatabase(session)).topics()
    session.close()
