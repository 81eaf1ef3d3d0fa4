"""Decodes the records of ``__consumer_offsets`` as a lag monitor does: every version of Kafka's schemas, by hand."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


@dataclass(frozen=True, kw_only=True)
class Commit:
    version: int
    offset: int
    metadata: str
    committed_at_ms: int
    leader_epoch: int = -1
    expires_at_ms: int = -1


@dataclass(frozen=True, kw_only=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, kw_only=True)
class GroupState:
    version: int
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    since_ms: int
    members: list[GroupMember]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.is_flexible = False

    def number(self, format_: str) -> int:
        (number,) = struct.unpack_from(format_, self.data, self.at)
        self.at += struct.calcsize(format_)
        return number

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def blob(self, classic: str) -> bytes | None:
        size = self._varint() - 1 if self.is_flexible else self.number(classic)
        if size < 0:
            return None
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size : self.at]

    def nullable(self) -> str | None:
        data = self.blob(">h")
        return None if data is None else data.decode()

    def text(self) -> str:
        text = self.nullable()
        assert text is not None
        return text

    def count(self) -> int:
        return self._varint() - 1 if self.is_flexible else self.number(">i")

    def tags(self) -> None:
        for _ in range(self._varint() if self.is_flexible else 0):
            self._varint()
            self.at += self._varint()

    def end(self) -> None:
        assert self.at == len(self.data), f"{len(self.data) - self.at} bytes are left over"


def decode_key(data: bytes) -> OffsetKey | GroupKey:
    reader = _Reader(data)
    version = reader.number(">h")
    assert version in (0, 1, 2)
    key = (
        GroupKey(reader.text())
        if version == 2
        else OffsetKey(reader.text(), reader.text(), reader.number(">i"))
    )
    reader.end()
    return key


def decode_commit(data: bytes) -> Commit:
    reader = _Reader(data)
    version = reader.number(">h")
    assert version in range(5)
    reader.is_flexible = version >= 4
    offset = reader.number(">q")
    leader_epoch = reader.number(">i") if version >= 3 else -1
    metadata = reader.text()
    committed_at_ms = reader.number(">q")
    expires_at_ms = reader.number(">q") if version == 1 else -1
    reader.tags()
    reader.end()
    return Commit(
        version=version,
        offset=offset,
        metadata=metadata,
        committed_at_ms=committed_at_ms,
        leader_epoch=leader_epoch,
        expires_at_ms=expires_at_ms,
    )


def decode_group(data: bytes) -> GroupState:
    reader = _Reader(data)
    version = reader.number(">h")
    assert version in range(5)
    reader.is_flexible = version >= 4
    protocol_type, generation = reader.text(), reader.number(">i")
    protocol, leader = reader.nullable(), reader.nullable()
    since_ms = reader.number(">q") if version >= 2 else -1
    members: list[GroupMember] = []
    for _ in range(reader.count()):
        member_id = reader.text()
        instance_id = reader.nullable() if version >= 3 else None
        client_id, client_host = reader.text(), reader.text()
        rebalance_timeout_ms = reader.number(">i") if version >= 1 else -1
        session_timeout_ms = reader.number(">i")
        subscription, assignment = reader.blob(">i"), reader.blob(">i")
        assert subscription is not None
        assert assignment is not None
        reader.tags()
        members.append(
            GroupMember(
                member_id=member_id,
                instance_id=instance_id,
                client_id=client_id,
                client_host=client_host,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=session_timeout_ms,
                subscription=subscription,
                assignment=assignment,
            )
        )
    reader.tags()
    reader.end()
    return GroupState(
        version=version,
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        since_ms=since_ms,
        members=members,
    )
