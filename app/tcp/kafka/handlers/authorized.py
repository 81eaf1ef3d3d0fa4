"""Authorized operations (KIP-430): all that a resource supports, because there is no authorizer.

Each operation of the ACLs is a bit.
"""

from __future__ import annotations

NOT_ASKED = -(1 << 31)
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


_TOPIC = _bits(_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
_GROUP = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
_CLUSTER = _bits(
    *(_CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE)
)


def on_topic(*, is_asked: bool = True) -> int:
    return _TOPIC if is_asked else NOT_ASKED


def on_group(*, is_asked: bool = True) -> int:
    return _GROUP if is_asked else NOT_ASKED


def on_cluster(*, is_asked: bool = True) -> int:
    return _CLUSTER if is_asked else NOT_ASKED
