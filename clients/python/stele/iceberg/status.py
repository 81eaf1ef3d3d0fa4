"""The state of all tables, as a supervisor reads it: one JSON object, of bounded size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from .topic import TopicWriter

_TOPICS_MAX = 1000
_TEXT_MAX = 500


def document(state: str, error: str, topics: Sequence[TopicWriter]) -> dict[str, Any]:
    """Return the status of the process and of its topics; of many topics, those that have failed come first."""
    ranked = sorted(topics, key=lambda one: (one.status.state != "failed", one.spec.topic))
    listed = [_topic(one) for one in ranked[:_TOPICS_MAX]]
    return {
        "state": state,
        "last_error": error[:_TEXT_MAX] or None,
        "topics": sorted(listed, key=lambda one: one["topic"]),
        "unlisted": max(len(ranked) - _TOPICS_MAX, 0),
    }


def _topic(one: TopicWriter) -> dict[str, Any]:
    status = one.status
    return {
        "topic": one.spec.topic,
        "topic_id": one.spec.topic_id,
        "state": status.state,
        "rows": status.rows,
        "error_rows": status.error_rows,
        "commits": status.commits,
        "failures": status.failures,
        "lost_records": status.lost,
        "lag_records": status.lag,
        "lag_seconds": round(time.monotonic() - status.level_s, 1) if status.lag else 0.0,
        "snapshot_id": status.snapshot_id,
        "committed_ms": status.committed_ms,
        "reason": status.reason[:_TEXT_MAX] or None,
    }
