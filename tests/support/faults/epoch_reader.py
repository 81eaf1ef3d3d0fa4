"""A reader of the Kafka protocol that compares leader epochs and truncates what it has read (KIP-320)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from zlib import crc32

from stele.wire import record_batch as rb
from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.metadata import MetadataRequest, MetadataRequestTopic
from stele.wire.kafka.offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

from tests.support import kafka_peer
from tests.support.kafka_peer import KafkaPeer

from .clients import ANSWER_S, PARTITIONS, Work
from .ledger import Place

_FETCH, _METADATA, _OFFSET_FOR_LEADER_EPOCH = 11, 9, 4
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Listener:
    """Implements ``KafkaAddress``."""

    kafka_port: int
    host: str = "127.0.0.1"


class _Log:
    """What it has read of one partition, and how far."""

    def __init__(self, place: Place, read: dict[int, int]) -> None:
        self.place = place
        # Checksum of the value by offset.
        self.read = read
        self.offset = 0
        # The leader epoch that it knows, and that of the last batch that it has read.
        self.known_epoch = -1
        self.read_epoch = -1
        # The listeners at which it has read to the end since it read something new.
        self.ended_at: set[int] = set()


def epoch_reader(ports: Sequence[int], topic: str, seed: int) -> Callable[[Work], None]:
    """Read a topic at changing brokers; at the end it has exactly what the log holds."""

    def run(work: Work) -> None:
        random = Random(seed)
        logs = [
            _Log((topic, number), work.ledger.read_with_epochs[topic, number]) for number in range(PARTITIONS)
        ]
        peer: KafkaPeer | None = None
        port = ports[0]
        while True:
            unread = [log for log in logs if log.ended_at != set(ports)]
            if work.is_over.is_set() and not unread:
                break
            log = random.choice(unread if work.is_over.is_set() else logs)
            try:
                if peer is None:
                    port = random.choice(ports)
                    peer = KafkaPeer(Listener(port))
                    peer.socket.settimeout(ANSWER_S)
                if _step(peer, log, work):
                    log.ended_at.add(port)
            except OSError as error:
                work.ledger.error("epoch reader", error)
            else:
                work.is_over.wait(_PAUSE_S / 2)
                # Another broker now and then.
                if random.random() < 0.8:
                    continue
            if peer is not None:
                peer.close()
                peer = None
            time.sleep(_PAUSE_S / 4)
        if peer is not None:
            peer.close()

    return run


def _step(peer: KafkaPeer, log: _Log, work: Work) -> bool:
    """Read what follows, or truncate; return whether that is nothing, because all is read."""
    topic, partition = log.place
    if log.known_epoch < 0:
        log.known_epoch = _leader_epoch(peer, log)
    answer = kafka_peer.only_partition(
        peer.call(
            kafka_peer.fetch(topic, log.offset, partition=partition, current_leader_epoch=log.known_epoch),
            _FETCH,
        )
    )
    if answer.error_code == ErrorCode.FENCED_LEADER_EPOCH:
        _validate(peer, log, work)
    elif answer.error_code:
        work.ledger.error("epoch reader", ErrorCode(answer.error_code).name)
    elif answer.records:
        _note(bytes(answer.records), log, work)
    else:
        return log.offset >= answer.high_watermark
    return False


def _leader_epoch(peer: KafkaPeer, log: _Log) -> int:
    topic, partition = log.place
    answer: Any = peer.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), _METADATA)
    (shown,) = answer.topics
    return next((row.leader_epoch for row in shown.partitions if row.partition_index == partition), -1)


def _validate(peer: KafkaPeer, log: _Log, work: Work) -> None:
    """Truncate to where the log diverges from what was read."""
    topic, partition = log.place
    epoch = _leader_epoch(peer, log)
    if log.read_epoch >= 0:
        asked = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=epoch, leader_epoch=log.read_epoch
        )
        answer: Any = peer.call(
            OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]),
            _OFFSET_FOR_LEADER_EPOCH,
        )
        ((found,),) = (row.partitions for row in answer.topics)
        if found.error_code:
            work.ledger.error("epoch reader", ErrorCode(found.error_code).name)
            return
        work.ledger.counts["validated by leader epochs"] += 1
        # -1: the log knows no such epoch, so nothing of what was read is left.
        end_offset = max(0, found.end_offset)
        if end_offset < log.offset:
            work.ledger.counts["truncated by leader epochs"] += 1
            for offset in range(end_offset, log.offset):
                log.read.pop(offset, None)
            log.offset = end_offset
            log.read_epoch = found.leader_epoch
    log.ended_at.clear()
    log.known_epoch = epoch


def _note(batches: bytes, log: _Log, work: Work) -> None:
    position = 0
    while position < len(batches):
        header = rb.check_batch(batches, position)
        if header.partition_leader_epoch < log.read_epoch:
            work.ledger.fail(
                f"the leader epoch of {log.place} fell from {log.read_epoch} to"
                f" {header.partition_leader_epoch} at offset {header.base_offset}"
            )
        for record in rb.decode_records(batches, header):
            if record.offset < log.offset:
                continue
            if record.offset != log.offset:
                work.ledger.fail(f"the epoch reader of {log.place} has a gap: {log.offset}, {record.offset}")
            value = record.value or b""
            work.ledger.see(log.place, record.offset, value, header.partition_leader_epoch)
            log.read[record.offset] = crc32(value)
            log.ended_at.clear()
            log.offset = record.offset + 1
        log.read_epoch = header.partition_leader_epoch
        position += header.size
