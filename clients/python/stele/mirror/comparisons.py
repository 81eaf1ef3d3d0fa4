"""Compares the batches of copies with those of one broker of the source."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ..errors import SteleClientError
from ..records import TopicPartition
from ..wire import record_batch as rb
from . import positions
from .divergence import common_end, compare
from .errors import SourceMalformed, SourceReplied
from .partition import PartitionCopy
from .positions import CopyState, SourceState
from .source import reads
from .source.cluster import Source
from .source.reads import FetchFrom, Listed
from .target import Target

# Of each partition of the source. Of a copy, one batch is enough to know its last one.
_TAIL_BYTES = 64 << 10
_SEARCH_BYTES = 256 << 10
_TAILS_BYTES_MAX = 8 << 20
_UNKNOWN = Listed(-1, -1)


class Comparisons:
    """Those with the partitions that one broker of the source leads."""

    def __init__(self, broker: int, source: Source, target: Target) -> None:
        self._broker = broker
        self._source = source
        self._target = target

    async def differing_tails(
        self,
        partitions: Iterable[PartitionCopy],
        copies: Mapping[TopicPartition, CopyState],
        sources: Mapping[TopicPartition, SourceState],
    ) -> dict[TopicPartition, int]:
        """Return the first offsets of the copies' last batches, of those that are others at the source.

        What cannot be read now is left out: the copying itself finds that.

        Raises as ``Source.call``.
        """
        compared = [
            one
            for one in partitions
            if self._target.has_batches
            and positions.must_compare(copies[one.name], sources[one.name])
            and copies[one.name].end <= sources[one.name].end
        ]
        last = {one.name: copies[one.name].end - 1 for one in compared}
        ours = await asyncio.gather(
            *(self._target.read(one.name, last[one.name], bytes_max=1) for one in compared),
            return_exceptions=True,
        )
        theirs: dict[TopicPartition, rb.Buffer] = {}
        # Of several partitions, a source may leave out those with larger batches.
        for asked in (compared, *([one] for one in compared)):
            missing = [one for one in asked if one.name not in theirs]
            if missing:
                theirs |= await self._read(missing, last, _TAIL_BYTES)
        found: dict[TopicPartition, int] = {}
        for one, tail in zip(compared, ours, strict=True):
            if isinstance(tail, BaseException):
                if not isinstance(tail, SteleClientError):
                    raise tail
            elif (at := _compared(tail, theirs.get(one.name, b""))) >= 0:
                found[one.name] = at
        return found

    async def search(self, one: PartitionCopy) -> tuple[int, CopyState, SourceState]:
        """Return up to where a copy and its source have the same batches, and what both have.

        That is the beginning of the source if they have nothing in common.

        Raises ``SourceError``, ``MirrorError``, ``SteleClientError``.
        """
        name, epochs = one.name, {one.name: one.leader.epoch}

        async def read(offset: int) -> tuple[rb.Buffer, rb.Buffer]:
            ours, theirs = await asyncio.gather(
                self._target.read(name, offset, bytes_max=_SEARCH_BYTES),
                self._read([one], {name: offset}, _SEARCH_BYTES),
            )
            return ours, theirs.get(name, b"")

        copy = (await self._target.states({name: one.copy_id}))[name]
        if not isinstance(copy, CopyState):
            raise copy
        start = (await reads.offsets(self._source, self._broker, epochs, reads.EARLIEST)).get(name, _UNKNOWN)
        end = (await reads.offsets(self._source, self._broker, epochs, reads.LATEST)).get(name, _UNKNOWN)
        if start.error or end.error:
            raise SourceReplied("ListOffsets", start.error or end.error)
        try:
            found = await common_end(max(copy.start, start.offset), min(copy.end, end.offset), read)
        except rb.CorruptBatchError as error:
            raise SourceMalformed(f"batches of {name} are not sound: {error}") from error
        return (
            start.offset if found is None else found,
            copy,
            SourceState(start=start.offset, end=end.offset),
        )

    async def _read(
        self, partitions: Sequence[PartitionCopy], offsets: Mapping[TopicPartition, int], bytes_max: int
    ) -> dict[TopicPartition, rb.Buffer]:
        """Read batches of the source; partitions with none, or with an error, are left out."""
        asked = {
            one.name: FetchFrom(one.topic_id, one.leader.epoch, offsets[one.name], positions.NO_EPOCH)
            for one in partitions
        }
        answers = await reads.fetch(
            self._source,
            self._broker,
            asked,
            wait_ms=0,
            bytes_max=_TAILS_BYTES_MAX,
            partition_bytes=bytes_max,
            purpose="other",
        )
        return {
            name: answer.records
            for name, answer in answers.items()
            if not answer.error_code and answer.records is not None and len(answer.records) >= rb.HEADER_BYTES
        }


def _compared(ours: rb.Buffer, theirs: rb.Buffer) -> int:
    try:
        return compare(ours, theirs).differs_at
    except rb.CorruptBatchError:
        return -1
