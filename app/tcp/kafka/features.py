"""The table of features that ApiVersions finalizes.

One row per feature (ADR-0021).

Clients choose protocols by what is finalized, so a feature has a row exactly if its APIs
are served. All levels are fixed, and UpdateFeatures refuses to change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stele.wire.kafka.api_versions import FinalizedFeatureKey, SupportedFeatureKey

# By name, in the order of names: the level that is in effect. The lowest supported level is 0.
FEATURES: Mapping[str, int] = {
    # KIP-848: groups whose partitions the broker assigns.
    "group.version": 1,
    # KIP-932: groups whose members take single records; with level 2 they have dead letters (KIP-1191).
    "share.version": 2,
    # KIP-890: each transaction has its own epoch, for clients that can.
    "transaction.version": 2,
}
# Clients use what is finalized if its epoch is not negative; the features never change.
FEATURES_EPOCH = 0
# Clients of version 3 reject a feature that is supported from level 0 on (KAFKA-17011).
_FIRST_WITH_MINIMUM_0 = 4

FINALIZED = [
    FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
    for name, level in FEATURES.items()
]
_SUPPORTED = [
    SupportedFeatureKey(name=name, min_version=0, max_version=level) for name, level in FEATURES.items()
]


def supported(version: int) -> Sequence[SupportedFeatureKey]:
    """Return the supported features for clients of ``version`` of ApiVersions."""
    return _SUPPORTED if version >= _FIRST_WITH_MINIMUM_0 else ()
