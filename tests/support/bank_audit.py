"""The bank as its logs have it: every batch read, by the rules of the format alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stele.records import TopicPartition
from stele.wire import record_batch as rb
from stele.wire.control_record import MarkerType, read_marker

from tests.support.bank import PLACES, place_of
from tests.support.bank_readers import Withheld
from tests.support.kafka_peer import KafkaPeer, fetch, only_partition
from tests.support.kafka_transactions import UNCOMMITTED

Aborted = tuple[int, int]


@dataclass(slots=True)
class LoggedTransaction:
    """What one transaction wrote to one partition."""

    producer_id: int
    first_offset: int
    batch_offsets: list[int] = field(default_factory=list[int])
    values: list[bytes] = field(default_factory=list[bytes])
    marker_offset: int = -1
    is_committed: bool = False


@dataclass(slots=True)
class LoggedPartition:
    """``transactions`` in the order of their markers; ``open`` have none."""

    transactions: list[LoggedTransaction]
    open: list[LoggedTransaction]
    end: int

    def aborted_in(self, start: int, end: int) -> list[Aborted]:
        """Return producer and first offset of the aborted transactions that a fetch of this range must name."""
        return sorted(
            (transaction.first_offset, transaction.producer_id)
            for transaction in self.transactions
            if not transaction.is_committed
            and transaction.marker_offset >= start
            and transaction.first_offset < end
        )


def scan(peer: KafkaPeer, place: TopicPartition) -> LoggedPartition:
    """Read a partition; fails for a marker that ends nothing, and for a batch of a producer that was fenced."""
    ended: list[LoggedTransaction] = []
    running: dict[int, LoggedTransaction] = {}
    epochs: dict[int, int] = {}
    offset = 0
    while raw := _batches(peer, place, offset):
        for header in rb.iter_headers(raw):
            assert header.base_offset == offset, f"a hole in {place} before {header.base_offset}"
            offset = header.next_offset
            producer_id = header.producer_id
            fenced_below = epochs.get(producer_id, -1)
            assert header.producer_epoch >= fenced_below, (
                f"{place}: {header} after a marker of epoch {fenced_below}"
            )
            if not header.is_control:
                assert header.is_transactional, header
                transaction = running.setdefault(
                    producer_id, LoggedTransaction(producer_id, header.base_offset)
                )
                transaction.batch_offsets.append(header.base_offset)
                transaction.values += [record.value or b"" for record in rb.decode_records(raw, header)]
                continue
            marker = read_marker(raw, header)
            assert marker is not None
            assert producer_id in running, f"{place}: the marker at {header.base_offset} ends nothing"
            transaction = running.pop(producer_id)
            transaction.marker_offset = header.base_offset
            transaction.is_committed = marker.type is MarkerType.COMMIT
            ended.append(transaction)
            epochs[producer_id] = header.producer_epoch
    return LoggedPartition(ended, list(running.values()), offset)


def _batches(peer: KafkaPeer, place: TopicPartition, offset: int) -> bytes:
    request = fetch(place.topic, offset, partition=place.partition)
    request.isolation_level = UNCOMMITTED
    partition = only_partition(peer.call(request, 12))
    assert partition.error_code == 0, partition
    return bytes(partition.records or b"")


class Audit:
    """All partitions, scanned."""

    def __init__(self, peer: KafkaPeer) -> None:
        self.partitions = {place: scan(peer, place) for place in PLACES}
        # Committed transfers by name and partition.
        self._committed: dict[tuple[str, TopicPartition], LoggedTransaction] = {}
        accounts: dict[str, list[int]] = {}
        amounts: dict[str, Mapping[str, int]] = {}
        for place, partition in self.partitions.items():
            assert not partition.open, (place, partition.open)
            for transaction in partition.transactions:
                if not transaction.is_committed:
                    continue
                for value in transaction.values:
                    entry = json.loads(value)
                    name = entry["transfer"]
                    assert place == place_of(entry["account"])
                    accounts.setdefault(name, []).append(entry["account"])
                    amounts[name] = entry["amounts"]
                    self._committed[name, place] = transaction
        for name, of_transfer in accounts.items():
            expected = sorted(map(int, amounts[name]))
            assert sorted(of_transfer) == expected, f"{name} has {sorted(of_transfer)}, not {expected}"
        self.transfers = set(accounts)

    def check_withheld(self, withheld: Iterable[Withheld]) -> None:
        """Fail for a record that a reader was not given though no earlier transaction was open there."""
        for transfer, place, stable_offset, high_watermark in withheld:
            own = self._committed[transfer, place]
            marker_offset = own.marker_offset
            others = [one for one in self.partitions[place].transactions if one is not own]
            # A batch of another producer that waits for its sync hides what follows it (ADR-0036).
            is_behind_a_sync = marker_offset > high_watermark and any(
                high_watermark in other.batch_offsets for other in others
            )
            assert marker_offset < high_watermark or is_behind_a_sync, (
                f"{transfer} was readable elsewhere before its marker {marker_offset} in {place} was appended, "
                f"whose high watermark was {high_watermark}"
            )
            holds_back = any(
                other.first_offset == stable_offset and other.marker_offset > marker_offset
                for other in others
            )
            assert holds_back, (
                f"{transfer} in {place} was not readable before {stable_offset}, "
                "and no transaction was open that begins there"
            )
