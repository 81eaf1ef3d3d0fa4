"""Start and end offsets of a read, resolved from the options in the driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..records import TopicPartition
from .fetching import Broker, report_loss
from .offsets import Offsets
from .options import (
    EARLIEST,
    LATEST,
    AtEnd,
    AtOffsets,
    AtTimestamp,
    AtTimestamps,
    Bound,
    OptionError,
    ReadOptions,
)


def start_offsets(broker: Broker, options: ReadOptions, names: Iterable[TopicPartition]) -> Offsets:
    """Return the start offset of each partition.

    Raises:
        OptionError: the options omit a partition, or name a time after the last record.
        DataLossError: a start offset is no longer in the log.
    """
    names = list(names)
    starts = _resolve(broker, options.start, names, "start")
    offsets: Offsets = {}
    for name, offset in starts.items():
        if offset is None:
            if options.start_beyond_last == "error":
                raise OptionError(
                    f"no record of {name} is as late as the options ask for; choose an earlier time, or set "
                    "startingOffsetsByTimestampStrategy=latest to begin with the records that come"
                )
            offset = broker.offset_at(name, LATEST) or 0
        offsets[name] = offset
    if isinstance(options.start, AtOffsets):
        _refuse_lost(broker, offsets, fail=options.fail_on_data_loss)
    return offsets


def end_offsets(broker: Broker, options: ReadOptions, names: Iterable[TopicPartition]) -> Offsets:
    """Return the end offset of each partition.

    The log end for a time after the last record.
    """
    ends = _resolve(broker, options.end, list(names), "end")
    return {
        name: (broker.offset_at(name, LATEST) or 0) if offset is None else offset
        for name, offset in ends.items()
    }


def _refuse_lost(broker: Broker, offsets: Offsets, *, fail: bool) -> None:
    """Check explicit start offsets: they may be deleted, or past the log end."""
    for name, offset in list(offsets.items()):
        earliest = broker.offset_at(name, EARLIEST) or 0
        latest = broker.offset_at(name, LATEST) or 0
        if offset > latest:
            raise OptionError(
                f"startingOffsets has offset {offset} for {name}, but its log ends at {latest}; "
                "write a smaller offset, or -1 (latest)"
            )
        if offset < earliest:
            report_loss(name.topic, name.partition, offset, earliest, fail=fail)
            offsets[name] = earliest


def _resolve(
    broker: Broker, bound: Bound, names: list[TopicPartition], word: str
) -> dict[TopicPartition, int | None]:
    match bound:
        case AtEnd():
            return broker.offsets_at(names, bound.offset)
        case AtTimestamp():
            return broker.offsets_at(names, bound.timestamp_ms)
        case AtTimestamps():
            _require_all(bound.timestamps, names, f"{word}ingOffsetsByTimestamp")
            return {n: broker.offset_at(n, bound.timestamps[n.topic][n.partition]) for n in names}
        case AtOffsets():
            _require_all(bound.offsets, names, f"{word}ingOffsets")
            given = {name: bound.offsets[name.topic][name.partition] for name in names}
            return {n: broker.offset_at(n, o) if o in (EARLIEST, LATEST) else o for n, o in given.items()}


def _require_all(given: Mapping[str, Mapping[int, int]], names: list[TopicPartition], option: str) -> None:
    named = {
        TopicPartition(topic, partition) for topic, partitions in given.items() for partition in partitions
    }
    missing, unknown = sorted(set(names) - named), sorted(named - set(names))
    if missing:
        raise OptionError(
            f"option {option} leaves out {', '.join(map(str, missing))}; name every partition that is read "
            "(-2 is the earliest offset, -1 the latest)"
        )
    if unknown:
        raise OptionError(
            f"option {option} names {', '.join(map(str, unknown))}, which is not among what is read: "
            f"{', '.join(map(str, names))}"
        )
