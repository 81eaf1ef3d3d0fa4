"""Describe, set and remove quotas of clients, users and hosts (KIP-546, KIP-612)."""

from __future__ import annotations

from collections.abc import Sequence

from stele.wire.error_codes import ErrorCode
from stele.wire.kafka.quotas import (
    ALTER_CLIENT_QUOTAS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntityDataResult,
    EntryData,
    EntryDataResult,
    OpData,
    ValueData,
)
from stele.wire.kafka.quotas import AlterClientQuotasEntry as AlteredEntry

from ....broker.quotas.entities import (
    EntityFilter,
    EntityType,
    Match,
    QuotaEntity,
    entity_type,
    unknown_type,
)
from ....broker.quotas.limits import QuotaKey
from ....errors import InvalidRequest, SteleError
from ....errors.base import short
from ....security.acl import ALTER_CONFIGS_CLUSTER, DESCRIBE_CONFIGS_CLUSTER
from ....security.audit import Peer, log_change
from ....work_budget import Pace, Steps, in_turns, mapped, visited
from ..context import Context, describe_error
from ..guards.refusals import refused
from ..guards.rights import PIECES_OF_REFUSAL, on_cluster
from ..served import Served, always

_MATCHES = (Match.EXACT, Match.DEFAULT, Match.ANY)
_ANONYMOUS = "log in to change quotas; otherwise any client could remove its own"


def describe_client_quotas(
    context: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return the quotas of the entities that the filter finds.

    Its checks are in Kafka's order.
    """
    try:
        _check_number("components of the filter", request.components, len(EntityType))
        wanted = _filter(request.components, is_strict=request.strict)
    except SteleError as error:
        return _refused(*describe_error(error))
    if isinstance(wanted, str):
        return _refused(ErrorCode.UNSUPPORTED_VERSION, unknown_type(wanted))
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in context.broker.quotas.list(wanted)
        ],
    )


def _refused(code: ErrorCode, message: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _filter(components: Sequence[ComponentData], *, is_strict: bool) -> EntityFilter | str:
    """Return the filter, or a type in it that does not exist. Raises InvalidRequest."""
    wanted: dict[EntityType, tuple[Match, str | None]] = {}
    for component in components:
        if not 0 <= component.match_type < len(_MATCHES):
            raise InvalidRequest(
                f"match type {component.match_type} is unknown; use 0 (exact), 1 (default), 2 (any)"
            )
        match = _MATCHES[component.match_type]
        if match is Match.EXACT and component.match is None:
            raise InvalidRequest("an exact match needs a name")
        if match is not Match.EXACT and component.match is not None:
            raise InvalidRequest("only an exact match has a name")
        if not component.entity_type:
            raise InvalidRequest("a component of the filter has no entity type")
        kind = entity_type(component.entity_type)
        if kind is None:
            return component.entity_type
        if kind in wanted:
            raise InvalidRequest(f"entity type {kind} is in the filter twice")
        wanted[kind] = match, component.match
    return EntityFilter(wanted, is_strict)


async def alter_client_quotas(
    context: Context, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change the quotas of each entity.

    An error in one of them leaves that entity as it was.
    """
    return AlterClientQuotasResponse(
        entries=[
            await _alter(context, entry, request.validate_only) async for entry in visited(request.entries)
        ]
    )


async def _alter(context: Context, entry: AlteredEntry, validate_only: bool) -> EntryDataResult:
    code, message = ErrorCode.NONE, None
    try:
        # With access rules, these have decided already.
        if (
            context.access is None
            and context.listener.security.guards_users
            and context.principal.is_anonymous
        ):
            raise InvalidRequest(_ANONYMOUS)
        _check_number("parts of an entity", entry.entity, len(EntityType))
        _check_number("quotas of an entity", entry.ops, len(QuotaKey))
        entity = QuotaEntity.of((part.entity_type, part.entity_name) for part in entry.entity)
        changes = _changes(entry.ops)
        await context.broker.quotas.alter(entity, changes, validate_only=validate_only)
        if not validate_only:
            log_change(
                Peer("kafka", context.peer, context.client_host),
                principal=str(context.principal),
                operation="alter-quotas",
                resource=f"Quota:{entity}",
            )
    except SteleError as error:
        code, message = describe_error(error)
    return EntryDataResult(
        error_code=code,
        error_message=message,
        entity=await in_turns(_entity(entry)),
    )


def _entity(entry: AlteredEntry) -> Steps[list[EntityDataResult]]:
    return mapped(
        lambda part: EntityDataResult(entity_type=part.entity_type, entity_name=part.entity_name),
        entry.entity,
    )


def _check_number(what: str, items: Sequence[object], limit: int) -> None:
    """Raises InvalidRequest for more than there are kinds of, before each is looked at."""
    if len(items) > limit:
        raise InvalidRequest(f"the request has {len(items)} {what}; there are {limit}, give each once")


def _changes(operations: Sequence[OpData]) -> dict[str, float | None]:
    """Raises InvalidRequest: a quota is changed twice."""
    changes: dict[str, float | None] = {}
    for change in operations:
        if change.key in changes:
            raise InvalidRequest(f"the request changes {short(change.key)} twice")
        changes[change.key] = None if change.remove else change.value
    return changes


def _each_quota(request: AlterClientQuotasRequest) -> Steps[AlterClientQuotasResponse]:
    entries: list[EntryDataResult] = []
    pace = Pace()
    for entry in request.entries:
        entity = yield from _entity(entry)
        entries.append(refused(EntryDataResult, ALTER_CONFIGS_CLUSTER, entity=entity))
        if pace.is_due(PIECES_OF_REFUSAL):
            yield
    return AlterClientQuotasResponse(entries=entries)


ROWS = (
    Served(
        DESCRIBE_CLIENT_QUOTAS_API,
        describe_client_quotas,
        on_cluster(DESCRIBE_CONFIGS_CLUSTER, DescribeClientQuotasResponse),
    ),
    Served(
        ALTER_CLIENT_QUOTAS_API,
        alter_client_quotas,
        on_cluster(ALTER_CONFIGS_CLUSTER, AlterClientQuotasResponse, _each_quota),
        changes=True,
        is_barrier=always,
    ),
)
