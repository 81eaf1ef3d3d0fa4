"""The state of a mirror, as its supervisor reads it: one JSON object, of bounded size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from ..records import TopicPartition
from .partition import PartitionCopy
from .topics import MirroredTopic

MirrorState = Literal["starting", "copying", "level", "failed"]

_PARTITIONS_MAX = 300
_NOT_COPIED_MAX = 100
_TEXT_MAX = 500
# The rate is that of this time.
_RATE_S = 5.0


class Rate:
    """Bytes per second, lately."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def of(self, total: int, now_s: float) -> float:
        """Note the total; return the rate."""
        self._samples.append((now_s, total))
        while len(self._samples) > 2 and self._samples[1][0] <= now_s - _RATE_S:
            self._samples.popleft()
        (begun_s, before), _ = self._samples[0], self._samples[-1]
        return (total - before) / (now_s - begun_s) if now_s > begun_s else 0.0


class Delay:
    """How old the copies are: since when one of them lacks what its source had then."""

    def __init__(self) -> None:
        # Of each partition: where its source ended at some time.
        self._goals: dict[TopicPartition, tuple[int, float]] = {}

    def of(self, partitions: Mapping[TopicPartition, PartitionCopy], now_s: float) -> float:
        """Note where the sources end; return the seconds.

        They go on while the source does not answer: then it is not known where it ends.
        """
        goals: dict[TopicPartition, tuple[int, float]] = {}
        for name, one in partitions.items():
            end, since_s = self._goals.get(name, (None, now_s))
            if end is None or (one.state in ("copying", "level") and one.end >= end):
                end, since_s = one.source_end or 0, now_s
            goals[name] = end, since_s
        self._goals = goals
        return max((now_s - since_s for _, since_s in goals.values()), default=0.0)


def state_of(
    topics: Iterable[MirroredTopic], partitions: Mapping[TopicPartition, PartitionCopy], failure: str
) -> tuple[MirrorState, str]:
    """Return the state of the whole, and the worst error; ``failure`` is that of the source as a whole.

    It is ``failed`` while the source cannot be reached, and while something has stopped that only a person can decide;
    the rest goes on. It is ``level`` only if everything is.
    """
    if failure:
        return "failed", failure
    counted = [topic for topic in topics if topic.state != "promoted"]
    for stopped in partitions.values():
        if stopped.is_stopped:
            return "failed", f"{stopped.name}: {stopped.error}"
    for topic in counted:
        if topic.state in ("refused", "recreated", "shrunk"):
            return "failed", topic.error
    trouble = [topic.error for topic in counted if topic.error] + [
        f"{one.name}: {one.error}" for one in partitions.values() if one.error
    ]
    error = trouble[0] if trouble else ""
    if not counted:
        return "starting", error or "no topic of the source matches the mirror's topics"
    # A topic whose copy is not made yet has no partitions here.
    if any(topic.state != "copying" or topic.copy is None for topic in counted):
        return "copying", error
    if all(one.state == "level" for one in partitions.values()):
        return "level", error
    if any(one.state in ("copying", "level", "waiting") for one in partitions.values()):
        return "copying", error
    return "starting", error


def document(
    name: str,
    *,
    topics: Sequence[MirroredTopic],
    partitions: Mapping[TopicPartition, PartitionCopy],
    failure: str,
    copied_bytes: int,
    bytes_per_s: float,
    lag_s: float,
    not_copied: Sequence[str],
) -> dict[str, Any]:
    """Return the status.

    Of many partitions, those that have stopped come first, then those with most lag; ``unlisted`` sums the others.
    """
    state, error = state_of(topics, partitions, failure)
    ranked = sorted(partitions.values(), key=lambda one: (not one.is_stopped, one.state == "level", -one.lag))
    listed, unlisted = ranked[:_PARTITIONS_MAX], ranked[_PARTITIONS_MAX:]
    shown: dict[str, list[dict[str, Any]]] = {}
    for one in sorted(listed, key=lambda one: one.name):
        shown.setdefault(one.name.topic, []).append(_partition(one))
    missing = [f"topic {topic.source.name}: {topic.error}" for topic in topics if topic.error]
    missing += [
        f"configuration {config} of topic {topic.source.name}: {why}"
        for topic in topics
        for config, why in topic.not_copied.items()
    ]
    missing += [
        f"{one.name}: the source deleted offsets {one.gap[0]} to {one.gap[1]} before they were copied"
        for one in ranked
        if one.gap is not None
    ]
    missing += not_copied
    if len(missing) > _NOT_COPIED_MAX:
        missing = [*missing[:_NOT_COPIED_MAX], f"and {len(missing) - _NOT_COPIED_MAX} more"]
    summed = {"partitions": len(unlisted), "lag": sum(one.lag for one in unlisted)}
    return {
        "name": name,
        "state": state,
        "lag": sum(one.lag for one in ranked),
        "lag_seconds": round(lag_s, 1),
        "source_records": sum(max(0, (one.source_end or 0) - one.start) for one in ranked),
        "stopped": sum(one.is_stopped for one in ranked),
        "bytes_per_s": round(bytes_per_s),
        "copied_bytes": copied_bytes,
        "topics": [{"topic": topic, "partitions": found} for topic, found in shown.items()],
        "not_copied": [text[:_TEXT_MAX] for text in missing],
        "last_error": error[:_TEXT_MAX] or None,
        **({"unlisted": summed} if unlisted else {}),
    }


def _partition(one: PartitionCopy) -> dict[str, Any]:
    return {
        "partition": one.name.partition,
        "offset": one.end,
        "source_end": one.source_end,
        "lag": one.lag,
        "state": one.state,
        "error": one.error or None,
        **({} if one.common_end is None else {"common_end": one.common_end}),
    }
