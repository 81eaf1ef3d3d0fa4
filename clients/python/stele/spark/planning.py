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
    starts = _resolve(broker, options.start, list(names), "start")
    late = [name for name, offset in starts.items() if offset is None]
    if late and options.start_beyond_last == "error":
        raise OptionError(
            f"no record of {late[0]} is as late as the options ask for; choose an earlier time, or set "
            "startingOffsetsByTimestampStrategy=latest to begin with the records that come"
        )
    offsets = _known(starts) | broker.latest(late)
    if isinstance(options.start, AtOffsets):
        _refuse_lost(broker, offsets, fail=options.fail_on_data_loss)
    return offsets


def end_offsets(broker: Broker, options: ReadOptions, names: Iterable[TopicPartition]) -> Offsets:
    """Return the end offset of each partition; the log end for a time after the last record.

    Raises:
        OptionError: the options omit a partition, or name an offset past the log end.
    """
    ends = _resolve(broker, options.end, list(names), "end")
    offsets = _known(ends) | broker.latest(name for name, offset in ends.items() if offset is None)
    if isinstance(options.end, AtOffsets):
        _refuse_past_end(offsets, broker.latest(offsets), "endingOffsets")
    return offsets


def _known(offsets: Mapping[TopicPartition, int | None]) -> Offsets:
    return {name: offset for name, offset in offsets.items() if offset is not None}


def _refuse_lost(broker: Broker, offsets: Offsets, *, fail: bool) -> None:
    """Check explicit start offsets: they may be deleted, or past the log end."""
    _refuse_past_end(offsets, broker.latest(offsets), "startingOffsets")
    for name, earliest in broker.earliest(offsets).items():
        if offsets[name] < earliest:
            report_loss(name.topic, name.partition, offsets[name], earliest, fail=fail)
            offsets[name] = earliest


def _refuse_past_end(offsets: Offsets, ends: Offsets, option: str) -> None:
    for name, offset in offsets.items():
        if offset > ends[name]:
            raise OptionError(
                f"{option} has offset {offset} for {name}, but its log ends at {ends[name]}; "
                "write a smaller offset, or -1 (latest)"
            )


def _resolve(
    broker: Broker, bound: Bound, names: list[TopicPartition], word: str
) -> dict[TopicPartition, int | None]:
    match bound:
        case AtEnd():
            return broker.offsets_at(dict.fromkeys(names, bound.offset))
        case AtTimestamp():
            return broker.offsets_at(dict.fromkeys(names, bound.timestamp_ms))
        case AtTimestamps():
            _require_all(bound.timestamps, names, f"{word}ingOffsetsByTimestamp")
            return broker.offsets_at({n: bound.timestamps[n.topic][n.partition] for n in names})
        case AtOffsets():
            _require_all(bound.offsets, names, f"{word}ingOffsets")
            given: dict[TopicPartition, int | None] = {
                name: bound.offsets[name.topic][name.partition] for name in names
            }
            ends = {n: o for n, o in given.items() if o is not None and o in (EARLIEST, LATEST)}
            return given | broker.offsets_at(ends)


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
