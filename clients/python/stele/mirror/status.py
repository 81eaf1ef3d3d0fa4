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
_TOPICS_MAX = 300
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
    bytes_per_s: float,
    not_copied: Mapping[str, str],
    groups: Mapping[str, object] | None,
) -> dict[str, Any]:
    """Return the status. Of many partitions, those that are not level come first; the rest is summed."""
    state, error = state_of(topics, partitions, failure)
    ranked = sorted(partitions.values(), key=lambda one: (not one.is_stopped, one.state == "level", -one.lag))
    shown: dict[str, list[dict[str, Any]]] = {}
    for one in ranked[:_PARTITIONS_MAX]:
        shown.setdefault(one.name.topic, []).append(_partition(one))
    troubled = [topic.source.name for topic in topics if topic.state != "copying"]
    names = list(dict.fromkeys((*shown, *troubled)))[:_TOPICS_MAX]
    known = {topic.source.name: topic for topic in topics}
    lags: dict[str, int] = {}
    counts: dict[str, int] = {}
    for one in partitions.values():
        lags[one.name.topic] = lags.get(one.name.topic, 0) + one.lag
        counts[one.name.topic] = counts.get(one.name.topic, 0) + 1
    configs = {
        f"configuration {config} of topic {topic.source.name}": why
        for topic in topics
        for config, why in topic.not_copied.items()
    }
    missing = [
        {"what": what[:_TEXT_MAX], "why": why[:_TEXT_MAX]}
        for what, why in (configs | dict(not_copied)).items()
    ]
    return {
        "name": name,
        "state": state,
        "lag": sum(lags.values()),
        "topic_count": len(topics),
        "partition_count": len(partitions),
        "topics": [
            {
                "topic": topic,
                "state": known[topic].state if topic in known else "copying",
                "error": (known[topic].error if topic in known else "")[:_TEXT_MAX],
                "partition_count": counts.get(topic, 0),
                "lag": lags.get(topic, 0),
                "partitions": sorted(shown.get(topic, ()), key=lambda one: one["partition"]),
            }
            for topic in names
        ],
        "bytes_per_s": round(bytes_per_s),
        "groups": groups,
        "not_copied": missing[:_NOT_COPIED_MAX],
        "not_copied_count": len(missing),
        "last_error": error[:_TEXT_MAX],
    }


def _partition(one: PartitionCopy) -> dict[str, Any]:
    return {
        "partition": one.name.partition,
        "offset": one.end,
        "source_end": one.source_end,
        "lag": one.lag,
        "state": one.state,
        "error": one.error,
    }
