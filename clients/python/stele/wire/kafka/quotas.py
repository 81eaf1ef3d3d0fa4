"""Client quotas (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence

from ..schema import Bool, Float64, Int8, Int16, Int32, message
from .api import Api

# ── DescribeClientQuotas (api key 48): lists quotas of clients and users (KIP-546).


@message
class ComponentData:
    entity_type: str
    match_type: Int8
    match: str | None


@message
class DescribeClientQuotasRequest:
    components: Sequence[ComponentData]
    strict: Bool


@message
class EntityData:
    entity_type: str
    entity_name: str | None


@message
class ValueData:
    key: str
    value: Float64


@message
class EntryData:
    entity: Sequence[EntityData]
    values: Sequence[ValueData]


@message
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: str | None
    entries: Sequence[EntryData] | None


DESCRIBE_CLIENT_QUOTAS_API = Api(
    key=48,
    name="DescribeClientQuotas",
    versions=(0, 1),
    flexible_since=1,
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
)


# ── AlterClientQuotas (api key 49): sets the quotas of clients and users (KIP-546).


@message
class OpData:
    key: str
    value: Float64
    remove: Bool


@message
class AlterClientQuotasEntry:
    entity: Sequence[EntityData]
    ops: Sequence[OpData]


@message
class AlterClientQuotasRequest:
    entries: Sequence[AlterClientQuotasEntry]
    validate_only: Bool


@message
class EntityDataResult:
    entity_type: str
    entity_name: str | None


@message
class EntryDataResult:
    error_code: Int16
    error_message: str | None
    entity: Sequence[EntityDataResult]


@message
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = 0
    entries: Sequence[EntryDataResult]


ALTER_CLIENT_QUOTAS_API = Api(
    key=49,
    name="AlterClientQuotas",
    versions=(0, 1),
    flexible_since=1,
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
)
