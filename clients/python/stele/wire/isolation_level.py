"""Isolation levels of readers, with the numbers of the Kafka protocol."""

from __future__ import annotations

from enum import IntEnum


class IsolationLevel(IntEnum):
    """``READ_COMMITTED``: up to the last stable offset, without the records of aborted transactions."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
