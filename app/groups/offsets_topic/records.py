"""The records of ``__consumer_offsets``, as Kafka's coordinator writes them.

Big-endian, after a version of 2 bytes. Strings and bytes follow their length (-1: null)::

    key    version 1   group, topic, partition:4                  a committed offset
           version 2   group                                      a group
    value  version 3   offset:8, leader epoch:4, metadata, committed at:8
           version 1   offset:8, metadata, committed at:8, expires at:8     with a retention of its own
    value  version 3   protocol type, generation:4, protocol, leader, state since:8, count:4, members:
                       member id, instance id, client id, client host, rebalance timeout:4,
                       session timeout:4, subscription (bytes), assignment (bytes)

Points in time are in ms since the epoch, timeouts in ms. These are the versions that Apache
Kafka 2.1 to 4.1 writes, and that every decoder reads. Kafka 4.3 adds the topic id to a
commit, as version 4. Its schemas are ``OffsetCommitKey``, ``OffsetCommitValue``, ``GroupMetadataKey`` and
``GroupMetadataValue``. A deletion has a key and no value.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from ...cluster.group_store import GroupRecord, MemberRecord, OffsetRecord

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_KEY, _GROUP_KEY = _INT16.pack(1), _INT16.pack(2)
_OFFSET_VALUE, _OFFSET_VALUE_WITH_EXPIRY, _GROUP_VALUE = _INT16.pack(3), _INT16.pack(1), _INT16.pack(3)
_OFFSET_AND_EPOCH = struct.Struct(">qi")
_TIMEOUTS = struct.Struct(">ii")
_STRING_BYTES_MAX = 32_767
_NULL = _INT16.pack(-1)
# Kafka refuses a rebalance whose record would be larger than its default max.message.bytes.
GROUP_BYTES_MAX = 1_048_576


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return b"".join((_OFFSET_KEY, _string(group), _string(topic), _INT32.pack(partition)))


def group_key(group: str) -> bytes:
    return _GROUP_KEY + _string(group)


def offset_value(record: OffsetRecord) -> bytes:
    metadata, committed_at = _string(record.metadata), _INT64.pack(record.committed_at_ms)
    if record.expires_at_ms is not None:
        head, tail = _OFFSET_VALUE_WITH_EXPIRY + _INT64.pack(record.offset), _INT64.pack(record.expires_at_ms)
        return b"".join((head, metadata, committed_at, tail))
    head = _OFFSET_AND_EPOCH.pack(record.offset, record.leader_epoch)
    return b"".join((_OFFSET_VALUE, head, metadata, committed_at))


def group_value(record: GroupRecord, *, state_since_ms: int) -> bytes:
    """Return the value of a group's record, at most ``GROUP_BYTES_MAX`` bytes.

    A larger one leaves out the subscriptions and assignments of the members, and if it is
    still too large, the members.
    """
    for members in (
        [_member(member, record.protocol_name, with_bytes=True) for member in record.members],
        [_member(member, record.protocol_name, with_bytes=False) for member in record.members],
        [],
    ):
        value = b"".join(
            (
                _GROUP_VALUE,
                _string(record.protocol_type or ""),
                _INT32.pack(record.generation),
                _nullable(record.protocol_name),
                _nullable(record.leader),
                _INT64.pack(state_since_ms),
                _INT32.pack(len(members)),
                *members,
            )
        )
        if len(value) <= GROUP_BYTES_MAX:
            return value
    return value  # pyright: ignore[reportPossiblyUnbound] - the loop runs three times


def group_size(record: GroupRecord) -> int:
    """Return about how many bytes of memory ``record`` takes."""
    return 256 + sum(
        512 + len(member.assignment) + sum(len(metadata) for _, metadata in member.protocols)
        for member in record.members
    )


@lru_cache(maxsize=4096)
def partition_of(group: str, partitions: int) -> int:
    """Return the partition in which Kafka keeps ``group``.

    It is Java's ``String.hashCode`` without its sign, modulo the number of partitions.
    """
    number = 0
    for (unit,) in struct.iter_unpack(">H", group.encode("utf-16-be", "surrogatepass")):
        number = (31 * number + unit) & 0xFFFFFFFF
    number = number - (1 << 32) if number >> 31 else number
    # Kafka's abs of the smallest number is 0.
    return 0 if number == -(1 << 31) else abs(number) % partitions


def _member(member: MemberRecord, protocol_name: str | None, *, with_bytes: bool) -> bytes:
    subscription, assignment = b"", b""
    if with_bytes:
        subscription = next((data for name, data in member.protocols if name == protocol_name), b"")
        assignment = member.assignment
    host = member.client_host
    return b"".join(
        (
            _string(member.member_id),
            _nullable(member.instance_id),
            _string(member.client_id),
            # As Java writes an address.
            _string(host if host.startswith("/") else f"/{host}"),
            _TIMEOUTS.pack(member.rebalance_timeout_ms, member.session_timeout_ms),
            _INT32.pack(len(subscription)),
            subscription,
            _INT32.pack(len(assignment)),
            assignment,
        )
    )


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > _STRING_BYTES_MAX:
        # A text this long can only come through another protocol. Readers understand a cut one.
        data = data[:_STRING_BYTES_MAX].decode(errors="ignore").encode()
    return _INT16.pack(len(data)) + data


def _nullable(text: str | None) -> bytes:
    return _NULL if text is None else _string(text)
