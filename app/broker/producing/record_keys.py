"""Checks that every record of a compacted topic has a key.

Compaction keeps the newest record per key, so a record without one could never be
kept. As in Apache Kafka such a batch is refused as a whole (``LogValidator``); an
empty key is a key. A header does not tell which records have one: small batches
that are not compressed are decoded on the event loop, and all others in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire import record_batch as rb

from ...errors import RECORD_ERRORS_MAX, InvalidBatch, MissingKey

# Decoding this much takes about 50 µs of the event loop; a thread adds twice that to each produce.
_LOOP_RECORDS_MAX = 100
_LOOP_BYTES_MAX = 64 * 1024


def is_checked_in_thread(header: rb.BatchHeader) -> bool:
    """Return whether looking for the keys of this batch would hold up the event loop."""
    return header.compression != 0 or header.record_count > _LOOP_RECORDS_MAX or header.size > _LOOP_BYTES_MAX


def check_keys(topic: str, batches: bytearray | memoryview, headers: Sequence[rb.BatchHeader]) -> None:
    """Check batches for the compacted ``topic``.

    Those that arrive and are for a thread hold up the event loop.

    Raises:
        InvalidBatch: records do not parse.
        MissingKey: some records have no key.
    """
    for header in headers:
        keys = KeyCheck(topic)
        try:
            keys.look_at(rb.decode_records(batches, header), 0)
        except rb.CorruptBatchError as error:
            raise InvalidBatch(str(error)) from error
        keys.conclude()


class KeyCheck:
    """Checks the keys of one batch, and collects the records that have none."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._indexes: list[int] = []
        self._refused = 0

    def look_at(self, records: Sequence[rb.RecordView], first_index: int) -> None:
        for index, record in enumerate(records, first_index):
            if record.key is None:
                self._refused += 1
                if len(self._indexes) < RECORD_ERRORS_MAX:
                    self._indexes.append(index)

    def conclude(self) -> None:
        """Raises ``MissingKey`` if a record has no key."""
        if self._indexes:
            raise MissingKey(self._topic, self._indexes, refused=self._refused)
