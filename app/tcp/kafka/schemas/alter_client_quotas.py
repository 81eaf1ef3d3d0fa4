"""AlterClientQuotas (api key 49): sets the quotas of clients and users (KIP-546)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.schema import Bool, Float64, Int16, Int32, message

from ..api import Api


@message
class EntityData:
    entity_type: str
    entity_name: str | None


@message
class OpData:
    key: str
    value: Float64
    remove: Bool


@message
class EntryData:
    entity: Sequence[EntityData]
    ops: Sequence[OpData]


@message
class AlterClientQuotasRequest:
    entries: Sequence[EntryData]
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


API = Api(
    key=49,
    name="AlterClientQuotas",
    versions=(0, 1),
    flexible_since=1,
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
)
