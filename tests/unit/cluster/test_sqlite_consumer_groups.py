"""Consumer groups in the SQLite store: what is written is what is read."""

from pathlib import Path
from uuid import uuid4

from app.cluster.consumer_group_store import (
    ClassicMembership,
    ConsumerGroupRecord,
    ConsumerMember,
    ConsumerMemberRecord,
    DeleteConsumerGroup,
    DeleteConsumerMember,
    MemberState,
    OwnedPartition,
    StoredConsumerGroup,
)
from app.cluster.group_store import DeleteGroup, GroupRecord, MemberProtocol, StoreChange
from app.cluster.sqlite.groups import SqliteGroupStore

FIRST, SECOND = uuid4(), uuid4()
RECORD = ConsumerGroupRecord(
    group="g",
    epoch=7,
    assignment_epoch=6,
    assignor="uniform",
    regexes={"a.*": frozenset({"ab", "ac"}), "b": frozenset()},
)
MEMBER = ConsumerMember(
    member_id="m1",
    instance_id="one",
    rack_id="rack",
    client_id="client",
    client_host="127.0.0.1",
    rebalance_timeout_ms=60_000,
    topics=frozenset({"t", "ü"}),
    regex="a.*",
    assignor="range",
    epoch=5,
    previous_epoch=4,
    state=MemberState.UNREVOKED_PARTITIONS,
    assigned={OwnedPartition(FIRST, 0): 3, OwnedPartition(SECOND, 11): 5},
    revoking={OwnedPartition(FIRST, 1): 2},
    target=frozenset({OwnedPartition(FIRST, 0)}),
    classic=ClassicMembership(
        session_timeout_ms=10_000, protocols=(MemberProtocol("range", b"\x00\xff"),), is_managed=True
    ),
)
CLASSIC = GroupRecord(
    group="g",
    generation=3,
    protocol_type=None,
    protocol_name=None,
    leader=None,
    emptied_at_ms=None,
    members=(),
)


def stored_after(path: Path, *changes: StoreChange) -> list[StoredConsumerGroup]:
    """Write to the store in ``path``; return what one that opens it next finds."""
    store = SqliteGroupStore(path / "groups.sqlite")
    store.open()
    store.write(changes)
    store.close()
    again = SqliteGroupStore(path / "groups.sqlite")
    found = again.open()
    again.close()
    return list(found.consumer_groups)


def test_a_group_is_read_as_it_was_written(tmp_path: Path) -> None:
    plain = ConsumerMember(member_id="m2")
    found = stored_after(
        tmp_path,
        RECORD,
        ConsumerMemberRecord(group="g", member=MEMBER),
        ConsumerMemberRecord(group="g", member=plain),
    )
    assert found == [StoredConsumerGroup(record=RECORD, members=(MEMBER, plain))]
    assert stored_after(tmp_path, DeleteConsumerMember(group="g", member_id="m1")) == [
        StoredConsumerGroup(record=RECORD, members=(plain,))
    ]


def test_a_group_is_of_one_protocol(tmp_path: Path) -> None:
    with_member = (RECORD, ConsumerMemberRecord(group="g", member=MEMBER))
    assert stored_after(tmp_path, *with_member, CLASSIC) == []
    assert len(stored_after(tmp_path, *with_member)) == 1
    store = SqliteGroupStore(tmp_path / "groups.sqlite")
    assert store.open().groups == []
    store.close()
    assert stored_after(tmp_path, DeleteConsumerGroup(group="g")) == []
    assert stored_after(tmp_path, *with_member, DeleteGroup(group="g")) == []
