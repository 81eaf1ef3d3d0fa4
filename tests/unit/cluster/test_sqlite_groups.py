"""The embedded group store: what it keeps, and whom it refuses."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from app.cluster.consumer_group_store import (
    ClassicMembership,
    ConsumerGroupRecord,
    ConsumerMember,
    MemberState,
    OwnedPartition,
    StoredConsumerGroup,
)
from app.cluster.group_store import (
    DeleteGroup,
    DeleteOffset,
    DeleteTopicOffsets,
    EndPendingOffsets,
    GroupChange,
    GroupRecord,
    MemberProtocol,
    MemberRecord,
    OffsetRecord,
    OwnerRecord,
    PendingOffset,
)
from app.cluster.share_group_store import SharePartitionRecord, StoredRecords
from app.cluster.sqlite.file import run_script
from app.cluster.sqlite.group_migrations import MIGRATIONS
from app.cluster.sqlite.groups import SqliteGroupStore
from app.errors import CoordinatorFenced, GroupStoreFailed

TOPIC_ID = UUID(int=7)


def member(member_id: str, instance_id: str | None = None) -> MemberRecord:
    return MemberRecord(
        member_id=member_id,
        instance_id=instance_id,
        client_id="client\0 Ω",
        client_host="127.0.0.1",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=60_000,
        protocols=(MemberProtocol("z", b"\x00\xff"), MemberProtocol("a", b"")),
        assignment=b"\x00" * 9,
    )


def group(name: str, *members: MemberRecord, generation: int = 3) -> GroupRecord:
    return GroupRecord(
        group=name,
        generation=generation,
        protocol_type="consumer",
        protocol_name="z" if members else None,
        leader=members[0].member_id if members else None,
        emptied_at_ms=None if members else 1_767_225_600_000,
        members=members,
    )


def offset(
    partition: int, value: int, *, of: str = "g", topic: str = "orders", topic_id: UUID = TOPIC_ID
) -> OffsetRecord:
    return OffsetRecord(
        group=of,
        topic=topic,
        topic_id=topic_id,
        partition=partition,
        offset=value,
        leader_epoch=-1,
        metadata="Ω",
        committed_at_ms=1_767_225_600_000,
        expires_at_ms=None if partition else 2**63 - 1,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "groups.sqlite"


def written(path: Path, *changes: GroupChange) -> None:
    store = SqliteGroupStore(path)
    store.open()
    store.write(changes)
    store.close()


def reopened(path: Path) -> tuple[list[GroupRecord], list[OffsetRecord]]:
    store = SqliteGroupStore(path)
    stored = store.open()
    store.close()
    return list(stored.groups), list(stored.offsets)


def test_a_new_store_is_empty(path: Path) -> None:
    assert reopened(path) == ([], [])


def test_what_was_written_is_there_after_opening_again(path: Path) -> None:
    # Members in the order in which they came, which is not that of their ids.
    groups = [group("g", member("m2", "i"), member("m1")), group("h")]
    offsets = [offset(0, 2**63 - 1), offset(1, 0), offset(0, 5, of="simple")]
    written(path, *groups, *offsets)
    assert reopened(path) == (groups, offsets)


def test_a_record_takes_the_place_of_the_one_before(path: Path) -> None:
    written(path, group("g", member("m1"), member("m2")), offset(1, 5), offset(2, 6))
    after = group("g", member("m3"), generation=4)
    written(path, after, offset(1, 7), offset(1, 8))
    assert reopened(path) == ([after], [offset(1, 8), offset(2, 6)])


def test_a_group_is_deleted_with_its_offsets_and_no_others(path: Path) -> None:
    written(path, group("g", member("m")), group("h", member("m")), offset(0, 1), offset(0, 2, of="h"))
    written(path, DeleteGroup(group="g"), DeleteGroup(group="no such group"))
    assert reopened(path) == ([group("h", member("m"))], [offset(0, 2, of="h")])


def test_offsets_are_deleted_one_by_one_or_with_their_topic(path: Path) -> None:
    new_id = uuid4()
    made_anew = offset(0, 1, of="k", topic_id=new_id)
    other = offset(0, 9, topic="payments")
    written(path, offset(0, 1), offset(1, 2), offset(1, 3, of="h"), made_anew, other)
    written(path, DeleteOffset(group="g", topic="orders", partition=1))
    assert reopened(path)[1] == [offset(0, 1), other, offset(1, 3, of="h"), made_anew]
    written(path, DeleteTopicOffsets(topic="orders", besides=new_id))
    assert reopened(path)[1] == [other, made_anew]
    written(path, DeleteTopicOffsets(topic="orders", besides=None))
    assert reopened(path)[1] == [other]


def pending(path: Path) -> list[tuple[int, OffsetRecord]]:
    store = SqliteGroupStore(path)
    stored = store.open()
    store.close()
    return [(one.producer_id, one.record) for one in stored.pending]


def staged(record: OffsetRecord, producer_id: int = 7) -> PendingOffset:
    return PendingOffset(producer_id=producer_id, producer_epoch=3, record=record)


def test_pending_offsets_are_kept_in_the_order_of_their_writing(path: Path) -> None:
    changes = [staged(offset(1, 5), 9), staged(offset(1, 6), 8), staged(offset(0, 2**63 - 1, of="h"), 9)]
    written(path, *changes)
    store = SqliteGroupStore(path)
    assert list(store.open().pending) == changes
    store.close()
    # One that takes the place of another is the newest.
    written(path, staged(offset(1, 7), 9))
    assert pending(path) == [(8, offset(1, 6)), (9, offset(0, 2**63 - 1, of="h")), (9, offset(1, 7))]
    assert reopened(path) == ([], [])


def test_the_end_of_a_transaction_commits_or_drops_the_pending_offsets_of_its_producer(path: Path) -> None:
    written(path, offset(0, 1), *(staged(offset(n, 5 + n), 7 + n) for n in range(3)))
    written(
        path,
        EndPendingOffsets(producer_id=7, is_committed=True),
        EndPendingOffsets(producer_id=8, is_committed=False),
    )
    assert reopened(path)[1] == [offset(0, 5)]
    assert pending(path) == [(9, offset(2, 7))]


def test_a_commit_or_a_deletion_drops_the_pending_offsets_of_its_partition(path: Path) -> None:
    four = [staged(offset(n, 5)) for n in range(2)] + [staged(offset(n, 5), 8) for n in range(2)]
    written(path, *four, offset(0, 1))
    assert pending(path) == [(7, offset(1, 5)), (8, offset(1, 5))]
    written(path, staged(offset(0, 5)), DeleteOffset(group="g", topic="orders", partition=1))
    assert pending(path) == [(7, offset(0, 5))]
    written(path, DeleteTopicOffsets(topic="orders", besides=TOPIC_ID))
    assert pending(path) == [(7, offset(0, 5))]
    written(path, DeleteTopicOffsets(topic="orders", besides=uuid4()))
    assert pending(path) == []
    written(path, *four, staged(offset(0, 5, of="h")), DeleteGroup(group="g"))
    assert pending(path) == [(7, offset(0, 5, of="h"))]


def at_version(database: sqlite3.Connection, version: int) -> None:
    """Create the tables of an earlier release."""
    for migration in MIGRATIONS[:version]:
        assert isinstance(migration, str)
        run_script(database, migration)
    database.execute(f"PRAGMA user_version = {version}")


def test_a_file_of_an_earlier_release_gets_room_for_pending_offsets(path: Path) -> None:
    with sqlite3.connect(path) as database:
        at_version(database, 2)
        database.execute("UPDATE coordinator SET epoch = 41")
        database.execute(
            "INSERT INTO offsets VALUES ('g', 'orders', 1, ?, 5, -1, 'Ω', 1767225600000, NULL)",
            (str(TOPIC_ID),),
        )
    database.close()
    store = SqliteGroupStore(path)
    stored = store.open()
    assert (stored.epoch, list(stored.offsets), list(stored.pending)) == (42, [offset(1, 5)], [])
    store.write([staged(offset(1, 6))])
    store.close()
    assert pending(path) == [(7, offset(1, 6))]


def test_groups_of_an_earlier_release_are_taken_over(path: Path) -> None:
    """Members and protocols were rows of tables of their own, as were the columns of consumer groups."""
    first, second = UUID(int=1), UUID(int=2)
    with sqlite3.connect(path) as database:
        at_version(database, 7)
        database.execute("INSERT INTO groups VALUES ('g', 3, 'consumer', 'z', 'm2', NULL)")
        database.execute("INSERT INTO groups VALUES ('h', 3, 'consumer', NULL, NULL, 1767225600000)")
        for place, (member_id, instance_id) in enumerate([("m2", "i"), ("m1", None)]):
            database.execute(
                "INSERT INTO members VALUES ('g', ?, ?, ?, ?, '127.0.0.1', 6000, 60000, ?, ?)",
                (place, member_id, instance_id, "client\0 Ω", b"\0" * 9, place),
            )
            database.executemany(
                "INSERT INTO member_protocols VALUES ('g', ?, ?, ?, ?)",
                [(place, 0, "z", b"\x00\xff"), (place, 1, "a", b"")],
            )
        database.execute("INSERT INTO owners VALUES ('g', 'orders', 4, 'm1')")
        database.execute(
            "INSERT INTO offsets VALUES ('g', 'orders', 1, ?, 5, -1, 'Ω', 1767225600000, NULL)",
            (str(TOPIC_ID),),
        )
        database.execute(
            "INSERT INTO pending_offsets VALUES (9, 7, 3, 'g', 'orders', 1, ?, 6, -1, 'Ω', 1767225600000, NULL)",
            (str(TOPIC_ID),),
        )
        database.execute(
            "INSERT INTO share_partitions VALUES ('s', ?, 2, 'orders', 4, 10, '[[11,12,2,1]]')",
            (str(TOPIC_ID),),
        )
        database.execute(
            """INSERT INTO consumer_groups VALUES ('c', 7, 6, 'uniform', '{"a.*": ["ab"]}', NULL)"""
        )
        database.execute(
            "INSERT INTO consumer_members VALUES ('c', 'm', 'one', NULL, 'client', '::1', 60000, ?, 'a.*', NULL, 5, 4, 1,"
            " ?, ?, ?, ?)",
            (
                '["t", "\\u00fc"]',
                f'{{"{first.hex}":[0,3,2,5],"{second.hex}":[11,5]}}',
                "{}",
                f'{{"{first.hex}":[0,1]}}',
                '{"session_timeout_ms": 10000, "protocols": [["range", "00ff"]], "is_managed": true}',
            ),
        )
        database.execute(
            "INSERT INTO consumer_members SELECT group_id, 'n', instance_id, rack_id, client_id, client_host,"
            " rebalance_timeout_ms, topics, regex, assignor, epoch, previous_epoch, state, assigned, revoking, target, NULL"
            " FROM consumer_members"
        )
    database.close()
    store = SqliteGroupStore(path)
    stored = store.open()
    store.close()
    members = (member("m2", "i"), replace(member("m1"), is_managed=True))
    owner = OwnerRecord(group="g", topic="orders", partition=4, member_id="m1")
    assert list(stored.groups) == [replace(group("g", *members), owners=(owner,)), group("h")]
    assert list(stored.offsets) == [offset(1, 5)]
    assert list(stored.pending) == [staged(offset(1, 6))]
    assert list(stored.share_partitions) == [
        SharePartitionRecord(
            group="s",
            topic="orders",
            topic_id=TOPIC_ID,
            partition=2,
            state_epoch=4,
            start_offset=10,
            records=(StoredRecords(11, 12, 2, 1),),
        )
    ]
    consumer = ConsumerMember(
        member_id="m",
        instance_id="one",
        client_id="client",
        client_host="::1",
        rebalance_timeout_ms=60_000,
        topics=frozenset({"t", "ü"}),
        regex="a.*",
        epoch=5,
        previous_epoch=4,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned={OwnedPartition(first, 0): 3, OwnedPartition(first, 2): 5, OwnedPartition(second, 11): 5},
        target=frozenset({OwnedPartition(first, 0), OwnedPartition(first, 1)}),
        classic=ClassicMembership(
            session_timeout_ms=10_000, protocols=(MemberProtocol("range", b"\x00\xff"),), is_managed=True
        ),
    )
    record = ConsumerGroupRecord(
        group="c", epoch=7, assignment_epoch=6, assignor="uniform", regexes={"a.*": frozenset({"ab"})}
    )
    plain = replace(consumer, member_id="n", classic=None)
    assert list(stored.consumer_groups) == [StoredConsumerGroup(record=record, members=(consumer, plain))]
    # What is written after the take-over counts as newer.
    written(path, staged(offset(1, 7), 8))
    assert pending(path) == [(7, offset(1, 6)), (8, offset(1, 7))]


def test_a_take_over_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite3.connect(path) as database:
        at_version(database, 7)
        database.execute("INSERT INTO groups VALUES ('h', 3, 'consumer', NULL, NULL, 1767225600000)")
        before = list(database.iterdump())
    database.close()
    with monkeypatch.context() as patched:
        patched.setattr("app.cluster.sqlite.groups.MIGRATIONS", (*MIGRATIONS, "SELECT * FROM no_such_table"))
        with pytest.raises(GroupStoreFailed, match="no_such_table"):
            SqliteGroupStore(path).open()
    with sqlite3.connect(path) as database:
        assert list(database.iterdump()) == before
    database.close()
    assert reopened(path) == ([group("h")], [])


def test_changes_are_made_in_their_order(path: Path) -> None:
    written(path, offset(0, 1), DeleteGroup(group="g"), offset(1, 2))
    assert reopened(path)[1] == [offset(1, 2)]


def test_a_write_is_made_whole_or_not_at_all(path: Path) -> None:
    store = SqliteGroupStore(path)
    store.open()
    store.write([offset(0, 1)])
    with pytest.raises(OverflowError):
        store.write([offset(0, 2), offset(1, 2**63)])
    store.write([offset(2, 3)])
    store.close()
    assert reopened(path)[1] == [offset(0, 1), offset(2, 3)]


def test_an_earlier_opener_of_the_store_is_fenced(path: Path) -> None:
    old, new = SqliteGroupStore(path), SqliteGroupStore(path)
    old.open()
    old.write([offset(0, 1)])
    assert list(new.open().offsets) == [offset(0, 1)]
    with pytest.raises(CoordinatorFenced) as error:
        old.write([offset(0, 2)])
    assert (error.value.epoch, error.value.current_epoch) == (1, 2)
    new.write([offset(0, 3)])
    with pytest.raises(CoordinatorFenced):
        old.write([DeleteGroup(group="g")])
    old.close()
    new.close()
    assert reopened(path)[1] == [offset(0, 3)]


def test_a_store_of_a_newer_release_is_not_touched(path: Path) -> None:
    written(path, offset(0, 1))
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(GroupStoreFailed, match="newer release"):
        SqliteGroupStore(path).open()


def test_a_file_that_is_not_a_database_is_an_error(path: Path) -> None:
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(GroupStoreFailed, match=r"groups\.sqlite"):
        SqliteGroupStore(path).open()


def test_after_an_error_of_the_disk_nothing_more_is_promised(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteGroupStore(path)
    store.open()
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("app.cluster.sqlite.groups.SqliteGroupTables.apply", fail)
        with pytest.raises(GroupStoreFailed):
            store.write([offset(0, 1)])
    with pytest.raises(GroupStoreFailed, match="disk I/O error"):
        store.write([offset(0, 2)])
    store.close()
    assert reopened(path)[1] == []


def test_a_full_disk_may_get_room_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteGroupStore(path)
    store.open()
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr("app.cluster.sqlite.groups.SqliteGroupTables.apply", fail)
        with pytest.raises(GroupStoreFailed):
            store.write([offset(0, 1)])
    store.write([offset(0, 2)])
    store.close()
    assert reopened(path)[1] == [offset(0, 2)]


def test_what_was_answered_survives_a_kill(path: Path) -> None:
    script = """
import os, signal, sys
from pathlib import Path
from uuid import UUID
from app.cluster.group_store import OffsetRecord
from app.cluster.sqlite.groups import SqliteGroupStore
store = SqliteGroupStore(Path(sys.argv[1]))
store.open()
for n in range(50):
    store.write([OffsetRecord(group="g", topic="orders", topic_id=UUID(int=7), partition=n % 3, offset=n,
                              leader_epoch=-1, metadata="", committed_at_ms=0, expires_at_ms=None)])
os.kill(os.getpid(), signal.SIGKILL)
"""
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'clients' / 'python'}"}
    done = subprocess.run([sys.executable, "-c", script, str(path)], env=environment, check=False)
    assert done.returncode == -9
    assert {o.partition: o.offset for o in reopened(path)[1]} == {0: 48, 1: 49, 2: 47}
