"""Batches that a broker could not store for now, and which later ones must not overtake.

A log accepts any first batch of a producer that it does not know. So if the first batch fails and the
second is committed, the first one would be out of order for ever. The broker that let it fail
remembers it, until the producer sends it again.
"""

from __future__ import annotations

from collections import OrderedDict

from stele.wire.record_batch import BatchHeader

from ...errors import OutOfOrderSequence, SteleError, StorageUnavailable
from .meta import Meta, MetaUnavailable
from .shared_log import SharedLog

# Beyond this number a later batch of a producer may be accepted before one that failed.
_REFUSED_MAX = 10_000


class RefusedBatches:
    """The first batch that failed, of each producer in each log."""

    def __init__(self, meta: Meta) -> None:
        self._meta = meta
        # Epoch and first sequence, by log and producer id.
        self._refused: OrderedDict[tuple[int, int], tuple[int, int]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, log: SharedLog, header: BatchHeader) -> None:
        """Note a batch that was not stored for now."""
        if not header.has_producer_id or header.base_sequence < 0:
            return
        key = (log.log_id, header.producer_id)
        epoch, sequence = self._refused.get(key, (-1, 0))
        is_earlier = epoch == header.producer_epoch and header.base_sequence < sequence
        if epoch < header.producer_epoch or is_earlier:
            self._refused[key] = (header.producer_epoch, header.base_sequence)
            if len(self._refused) > _REFUSED_MAX:
                self._refused.popitem(last=False)

    async def error(self, log: SharedLog, header: BatchHeader) -> SteleError | None:
        """Return why a batch must not be committed now; None if it may be.

        The metadata judges the batches of producers that the log knows.
        """
        key = (log.log_id, header.producer_id)
        failed = self._refused.get(key)
        if failed is None or not header.has_producer_id:
            return None
        epoch, sequence = failed
        if header.producer_epoch == epoch and header.base_sequence > sequence:
            try:
                known = await self._meta.producers(log.log_id)
            except MetaUnavailable as error:
                return StorageUnavailable("the append", str(error))
            if not any(row.producer_id == header.producer_id for row in known):
                return OutOfOrderSequence(
                    producer_id=header.producer_id, sequence=header.base_sequence, expected=sequence
                )
        self._refused.pop(key, None)
        return None
