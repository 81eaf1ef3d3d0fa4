"""Authorized operations (KIP-430) without access rules.

All that a resource supports, one bit each.

With access rules, the guards replace them by those of the client.
"""

from __future__ import annotations

from ....security.acl import OPERATIONS_OF, ResourceType

NOT_ASKED = -(1 << 31)


def _bits(resource_type: ResourceType) -> int:
    return sum(1 << operation for operation in OPERATIONS_OF[resource_type])


_TOPIC, _GROUP = _bits(ResourceType.TOPIC), _bits(ResourceType.GROUP)
_CLUSTER = _bits(ResourceType.CLUSTER)


def on_topic(*, is_asked: bool = True) -> int:
    return _TOPIC if is_asked else NOT_ASKED


def on_group(*, is_asked: bool = True) -> int:
    return _GROUP if is_asked else NOT_ASKED


def on_cluster(*, is_asked: bool = True) -> int:
    return _CLUSTER if is_asked else NOT_ASKED
