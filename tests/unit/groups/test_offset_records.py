"""Records of ``__consumer_offsets``, held against bytes that Apache Kafka 4.3.1 wrote for the same requests."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from app.cluster.group_store import GroupRecord, MemberProtocol, MemberRecord, OffsetRecord
from app.groups.offsets_topic.records import (
    GROUP_BYTES_MAX,
    group_key,
    group_value,
    offset_key,
    offset_value,
    partition_of,
)
from tests.support.offset_records import GroupKey, OffsetKey, decode_commit, decode_group, decode_key

COMMIT = OffsetRecord(
    group="retained",
    topic="orders",
    topic_id=uuid4(),
    partition=0,
    offset=1,
    leader_epoch=-1,
    metadata="",
    committed_at_ms=0x01A2_01E8_EE2F,
    expires_at_ms=0x01A2_070F_4A2F,
)
MEMBER_ID = "app-65729aea-097d-430c-8007-63ee63eab499"
SUBSCRIPTION = b"\0\0\0\0\0\x01\0\x06orders\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0\0\0\0\x01\0\x06orders\0\0\0\x02\0\0\0\0\0\0\0\x01\xff\xff\xff\xff"
MEMBER = MemberRecord(
    member_id=MEMBER_ID,
    instance_id=None,
    client_id="app",
    client_host="127.0.0.1",
    session_timeout_ms=30_000,
    rebalance_timeout_ms=30_000,
    protocols=(MemberProtocol("roundrobin", b"other"), MemberProtocol("range", SUBSCRIPTION)),
    assignment=ASSIGNMENT,
)
GROUP = GroupRecord(
    group="monitored",
    generation=1,
    protocol_type="consumer",
    protocol_name="range",
    leader=MEMBER_ID,
    emptied_at_ms=None,
    members=(MEMBER,),
)


def test_a_commit_with_a_retention_of_its_own_has_the_bytes_of_apache_kafka() -> None:
    assert offset_key("retained", "orders", 0) == b"\0\x01\0\x08retained\0\x06orders\0\0\0\0"
    assert offset_value(COMMIT) == (
        b"\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\x01\xa2\x01\xe8\xee/\0\0\x01\xa2\x07\x0fJ/"
    )


def test_a_group_has_the_bytes_of_apache_kafka() -> None:
    assert group_key("monitored") == b"\0\x02\0\x09monitored"
    assert group_value(GROUP, state_since_ms=0x01A2_01E8_ED1C) == (
        b"\0\x03\0\x08consumer\0\0\0\x01\0\x05range\0(" + MEMBER_ID.encode() + b"\0\0\x01\xa2\x01\xe8\xed\x1c"
        b"\0\0\0\x01\0(" + MEMBER_ID.encode() + b"\xff\xff\0\x03app\0\n/127.0.0.1\0\0u0\0\0u0"
        b"\0\0\0\x12" + SUBSCRIPTION + b"\0\0\0\x1e" + ASSIGNMENT
    )


def test_a_group_that_is_empty_has_the_bytes_of_apache_kafka() -> None:
    empty = replace(GROUP, generation=2, protocol_name=None, leader=None, members=())
    assert group_value(empty, state_since_ms=0x01A2_01E8_EE38) == (
        b"\0\x03\0\x08consumer\0\0\0\x02\xff\xff\xff\xff\0\0\x01\xa2\x01\xe8\xee8\0\0\0\0"
    )


def test_a_commit_is_what_a_monitor_decodes() -> None:
    value = offset_value(replace(COMMIT, expires_at_ms=None, metadata="größe", leader_epoch=3))
    commit = decode_commit(value)
    assert (commit.version, commit.offset, commit.metadata, commit.leader_epoch) == (3, 1, "größe", 3)
    assert decode_key(offset_key("g", "t", 7)) == OffsetKey("g", "t", 7)
    assert decode_key(group_key("g")) == GroupKey("g")


def test_metadata_that_is_too_long_for_the_format_is_cut() -> None:
    commit = decode_commit(offset_value(replace(COMMIT, metadata="ä" * 20_000)))
    assert commit.metadata == "ä" * 16_383


@pytest.mark.parametrize(
    ("members", "metadata_bytes", "kept"),
    [(1, 100, (1, 100)), (40, 30_000, (40, 0)), (1000, 3000, (1000, 0)), (30_000, 100, (0, 0))],
)
def test_a_group_record_is_never_larger_than_a_broker_accepts(
    members: int, metadata_bytes: int, kept: tuple[int, int]
) -> None:
    member = replace(MEMBER, protocols=(MemberProtocol("range", bytes(metadata_bytes)),))
    value = group_value(replace(GROUP, members=(member,) * members), state_since_ms=0)
    assert len(value) <= GROUP_BYTES_MAX
    decoded = decode_group(value)
    found = len(decoded.members[0].subscription) if decoded.members else 0
    assert (len(decoded.members), found) == kept


@pytest.mark.parametrize(
    ("group", "partition"),
    # The first three are where Apache Kafka put them; the last has the one hash without an absolute value.
    [("retained", 8), ("monitored", 3), ("simple", 26), ("", 0), ("polygenelubricants", 0)],
)
def test_a_group_is_in_the_partition_where_kafka_keeps_it(group: str, partition: int) -> None:
    assert partition_of(group, 50) == partition


def test_characters_outside_of_the_basic_plane_count_as_java_counts_them() -> None:
    # Java: "\uD83D\uDE00".hashCode() is 31 * 0xD83D + 0xDE00.
    assert partition_of("😀", 50) == (31 * 0xD83D + 0xDE00) % 50
