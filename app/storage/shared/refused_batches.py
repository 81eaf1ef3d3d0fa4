"""Batches that could not be stored yet, and which later ones must not overtake.

A log accepts any first batch of a producer that it does not know. So if the first batch fails and the
second is committed, the first one would be out of order forever. The broker remembers the failed
batch until the producer sends it again.

Batches that were sent after it before the producer knew get the same retriable error, not that they are
out of order: librdkafka answers that with a new epoch, under which it sends again what it has in flight at
other brokers, and what those have stored already is then stored twice.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from stele.wire.record_batch import BatchHeader

from ...clock import Clock
from ...errors import OutOfOrderSequence, SteleError, StorageUnavailable
from .log import SharedLog
from .meta import Meta, MetaUnavailable

# Batches sent after one that failed arrive within this time. Later ones make the producer start again.
_BEHIND_MS = 30_000
# Beyond this number a later batch of a producer may be accepted before one that failed.
_REFUSED_MAX = 10_000


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    at_ms: int


class RefusedBatches:
    """The first batch that failed, of each producer in each log."""

    def __init__(self, meta: Meta, clock: Clock) -> None:
        self._meta = meta
        self._clock = clock
        # By log and producer id.
        self._refused: OrderedDict[tuple[int, int], _Refused] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, log: SharedLog, header: BatchHeader) -> None:
        """Note a batch that was not stored for now."""
        if not header.has_producer_id or header.base_sequence < 0:
            return
        key = (log.log_id, header.producer_id)
        epoch, sequence, _ = self._refused.get(key, _Refused(-1, 0, 0))
        is_earlier = epoch == header.producer_epoch and header.base_sequence <= sequence
        if epoch < header.producer_epoch or is_earlier:
            self._refused[key] = _Refused(
                header.producer_epoch, header.base_sequence, self._clock.monotonic_ms()
            )
            if len(self._refused) > _REFUSED_MAX:
                self._refused.popitem(last=False)

    def forget_settled(self) -> None:
        """Forget batches for which no later one can be on its way.

        The metadata begin another history: they may have forgotten a producer, and will not say that it has sent
        them again.
        """
        now_ms = self._clock.monotonic_ms()
        for key, failed in list(self._refused.items()):
            if now_ms - failed.at_ms > _BEHIND_MS:
                del self._refused[key]

    async def error(self, log: SharedLog, header: BatchHeader) -> SteleError | None:
        """Return why a batch must not be committed now; None if it may be.

        The metadata judges the batches of producers that the log knows.
        """
        key = (log.log_id, header.producer_id)
        failed = self._refused.get(key)
        if failed is None or not header.has_producer_id or header.producer_epoch < failed.epoch:
            # One of an earlier version of the producer says nothing of the one that failed.
            return None
        if header.producer_epoch == failed.epoch and header.base_sequence > failed.sequence:
            try:
                known = await self._meta.producers(log.log_id)
            except MetaUnavailable as error:
                return StorageUnavailable("the append", str(error))
            if any(row.producer_id == header.producer_id for row in known):
                # Forgotten when it is accepted: until then ``verdict`` needs it.
                return None
            return self.verdict(
                log,
                header,
                OutOfOrderSequence(
                    producer_id=header.producer_id, sequence=header.base_sequence, expected=failed.sequence
                ),
            )
        self._refused.pop(key, None)
        return None

    def accepted(self, log: SharedLog, header: BatchHeader) -> None:
        """Note a batch that was stored: the failed one came before it, perhaps by way of another broker."""
        failed = self._refused.get((log.log_id, header.producer_id)) if self._refused else None
        if failed is not None and header.producer_epoch >= failed.epoch:
            del self._refused[log.log_id, header.producer_id]

    def verdict(self, log: SharedLog, header: BatchHeader, error: SteleError) -> SteleError:
        """Return the error that the producer of a refused batch gets instead of ``error``."""
        failed = self._refused.get((log.log_id, header.producer_id))
        if (
            failed is not None
            and isinstance(error, OutOfOrderSequence)
            and failed.epoch == header.producer_epoch
            and failed.sequence < header.base_sequence
            and self._clock.monotonic_ms() - failed.at_ms <= _BEHIND_MS
        ):
            return StorageUnavailable("the append", "a batch before it failed; that one comes first")
        return error
