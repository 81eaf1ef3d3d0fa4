"""Administer transactions: list, describe, abort, and show open ones per partition."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...errors import InvalidRequest
from ...linear_regex import InvalidPattern, LinearRegex
from ...security.acl import DESCRIBE_TOPIC, DESCRIBE_TRANSACTIONAL_ID
from ...security.audit import log_change
from ...security.principal import ANONYMOUS
from ...storage.topic_partition import TopicPartition
from ...transactions.messages import NOT_STARTED, PartitionTransaction, TransactionListing
from ...transactions.partition_transactions import abort_in_partition
from ...transactions.states import TransactionState
from ...work_budget import WorkBudget
from ..authentication import peer_of
from ..encoded_slash import EncodedSlashRoute
from ..json_bodies import json_answer
from ..openapi import transactions_admin as openapi
from ..requests import INT32_MAX, INT64_MAX, boolean_parameter, integer_parameter, path_integer
from ..rights import is_seen, require
from ..state import api_state, broker_of, transactions_of

router = APIRouter(tags=["transactions"], route_class=EncodedSlashRoute)

_PAGE_DEFAULT, _PAGE_MAX = 1000, 10_000
_STATES = tuple(state.value for state in TransactionState)
_NO_FILTER = -1
_ORDERS = ("id", "oldest")


@router.get("/v1/transactions", openapi_extra=openapi.LIST_TRANSACTIONS, summary="List transactional ids")
async def list_transactions(request: Request) -> Response:
    """List transactional ids with their states, one page at a time; each filter that is given must match.

    `state` is a list, separated by commas. `min_duration_ms` selects transactions that have been open for longer. `pattern` is a
    regular expression that must match the whole id, `search` a text that the id contains. Pages are numbered from 1;
    alternatively, in the order of ids, `after` continues after the last id of a page. `order=oldest` begins with the
    transaction that has been open for longest. `started_at` is null if no transaction is open.
    """
    state = api_state(request)
    limit = integer_parameter(request, "limit", _PAGE_DEFAULT, minimum=1, maximum=_PAGE_MAX)
    number = integer_parameter(request, "page", 1, minimum=1, maximum=INT32_MAX)
    matching = await _matching(request)
    if _order(request) == "oldest":
        matching.sort(key=_age_order)
    begin = (number - 1) * limit
    page = matching[begin : begin + limit]
    counts = state.transactions.coordinator.counts
    return json_answer(
        {
            "now": state.broker.now_ms(),
            "open": counts.open,
            "transactions": [
                {
                    "transactional_id": listing.transactional_id,
                    "state": listing.state.value,
                    "producer_id": listing.producer_id,
                    "started_at": _time(listing.started_at_ms),
                }
                for listing in page
            ],
            "next_after": page[-1].transactional_id if len(matching) > begin + limit else None,
            "total": len(matching),
        }
    )


def _order(request: Request) -> str:
    order = request.query_params.get("order", "id")
    if order not in _ORDERS:
        raise InvalidRequest(f"order is {order[:40]!r}; it must be id or oldest")
    if order == "oldest" and request.query_params.get("after", ""):
        raise InvalidRequest("after continues in the order of ids; use page with order=oldest")
    return order


def _age_order(listing: TransactionListing) -> tuple[bool, int, str]:
    return listing.started_at_ms == NOT_STARTED, listing.started_at_ms, listing.transactional_id


async def _matching(request: Request) -> list[TransactionListing]:
    """Return the transactional ids that match the filters, sorted."""
    states = [name for name in request.query_params.get("state", "").split(",") if name]
    for name in states:
        if name not in _STATES:
            raise InvalidRequest(f"state is {name[:40]!r}; it must be one of {', '.join(_STATES)}")
    min_duration_ms = integer_parameter(
        request, "min_duration_ms", _NO_FILTER, minimum=_NO_FILTER, maximum=INT64_MAX
    )
    text = request.query_params.get("pattern", "")
    try:
        pattern = LinearRegex(text) if text else None
    except InvalidPattern as error:
        raise InvalidRequest(f"pattern is {text[:100]!r}: {error}") from error
    wanted, after = (
        request.query_params.get("search", "").lower(),
        request.query_params.get("after", ""),
    )
    budget = WorkBudget()
    is_visible = is_seen(request, DESCRIBE_TRANSACTIONAL_ID)
    matching: dict[str, TransactionListing] = {}
    for listing in await transactions_of(request).coordinator.list(
        states=frozenset(states), min_duration_ms=min_duration_ms
    ):
        await budget.visit()
        name = listing.transactional_id
        if is_visible(name) and name > after and wanted in name.lower():
            matching[name] = listing
    if pattern is None:
        return list(matching.values())
    try:
        return [matching[name] for name in await pattern.matching(matching)]
    except InvalidPattern as error:
        raise InvalidRequest(f"pattern is {text[:100]!r}: {error}") from error


def _time(ms: int) -> int | None:
    return None if ms == NOT_STARTED else ms


@router.get(
    "/v1/transactions/{transactional_id}",
    openapi_extra=openapi.GET_TRANSACTION,
    summary="Describe a transactional id",
)
async def get_transaction(request: Request) -> Response:
    """Return the state, the producer and the partitions of the open transaction.

    While it ends, those without a marker.

    `holds_back` tells whether the transaction holds back the last stable offset of the partition: readers of committed
    records get nothing from `first_offset` on until it ends. `first_offset` is null if nothing was written there yet.
    """
    broker, transactions = broker_of(request), transactions_of(request).coordinator
    described = await transactions.describe(str(request.path_params["transactional_id"]))
    here = await transactions.open_in(described.partitions) if described.partitions else {}
    budget = WorkBudget()
    is_visible = is_seen(request, DESCRIBE_TOPIC)
    partitions: list[dict[str, Any]] = []
    for name in described.partitions:
        await budget.visit()
        if not is_visible(name.topic):
            continue
        opened = next((one for one in here.get(name, ()) if one.producer_id == described.producer_id), None)
        partitions.append(
            {
                "topic": name.topic,
                "partition": name.partition,
                "first_offset": opened and opened.first_offset,
                "holds_back": opened is not None and opened.holds_back,
            }
        )
    return json_answer(
        {
            "transactional_id": described.transactional_id,
            "state": described.state.value,
            "producer_id": described.producer_id,
            "producer_epoch": described.producer_epoch,
            "timeout_ms": described.timeout_ms,
            "now": broker.now_ms(),
            "started_at": _time(described.started_at_ms),
            "partitions": partitions,
        }
    )


@router.delete(
    "/v1/transactions/{transactional_id}",
    status_code=204,
    openapi_extra=openapi.ABORT_TRANSACTION,
    summary="Abort the open transaction of a transactional id",
)
async def terminate_transaction(request: Request) -> Response:
    """Abort the open transaction, and fence its producer, which must begin again.

    Without one, this changes nothing.

    When this is answered, readers of committed records continue past the transaction in all its partitions.
    """
    name = str(request.path_params["transactional_id"])
    await transactions_of(request).coordinator.abort(name)
    _log(request, f"TransactionalId:{name}")
    return Response(status_code=204)


def _log(request: Request, resource: str) -> None:
    log_change(
        peer_of(request.scope),
        principal=str(request.scope.get("stele.principal", ANONYMOUS)),
        operation="abort-transaction",
        resource=resource,
    )


# ── in the logs ──


@router.get(
    "/v1/open-transactions",
    openapi_extra=openapi.LIST_OPEN_TRANSACTIONS,
    summary="List what is open in partitions",
)
async def list_open_transactions(request: Request) -> Response:
    """List the transactions that are open in the logs, oldest first.

    There is one row per partition.

    A transaction that no coordinator knows is *hanging*: its `transactional_id` is null, and `since` is the time of its
    last batch. `hanging=true` selects those. `total` counts what matches, `transactions` has at most `limit` of them.
    """
    broker, transactions = broker_of(request), transactions_of(request).coordinator
    limit = integer_parameter(request, "limit", _PAGE_DEFAULT, minimum=1, maximum=_PAGE_MAX)
    is_hanging_only = boolean_parameter(request, "hanging")
    only_topic = request.query_params.get("topic")
    if only_topic is not None:
        require(request, DESCRIBE_TOPIC, [only_topic])
        only_topic = broker.topic(only_topic).name
    budget = WorkBudget()
    is_visible = is_seen(request, DESCRIBE_TOPIC)
    listed: list[PartitionTransaction] = []
    for name, here in (await transactions.open_in()).items():
        await budget.visit()
        if only_topic in (None, name.topic) and is_visible(name.topic):
            listed += (one for one in here if one.is_hanging or not is_hanging_only)
    listed.sort(key=lambda one: (one.since_ms, one.topic_partition, one.first_offset))
    return json_answer(
        {
            "now": broker.now_ms(),
            "transactions": [_shown(request, one) for one in listed[:limit]],
            "total": len(listed),
        }
    )


def _shown(request: Request, one: PartitionTransaction) -> dict[str, Any]:
    transactional_id = one.transactional_id
    if transactional_id is not None and not is_seen(request, DESCRIBE_TRANSACTIONAL_ID)(transactional_id):
        transactional_id = None
    return {
        "topic": one.topic_partition.topic,
        "partition": one.topic_partition.partition,
        "transactional_id": transactional_id,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "first_offset": one.first_offset,
        "since": one.since_ms,
        "hanging": one.is_hanging,
        "holds_back": one.holds_back,
    }


@router.get(
    "/v1/topics/{topic}/partitions/{partition}/transactions",
    openapi_extra=openapi.LIST_PARTITION_TRANSACTIONS,
    summary="List what is open in a partition",
)
async def list_partition_transactions(request: Request) -> Response:
    """List the transactions that are open in a partition; the first one holds back its last stable offset."""
    broker, name = broker_of(request), _partition(request)
    broker.log_state(*name)
    here = (await transactions_of(request).coordinator.open_in([name])).get(name, ())
    return json_answer(
        {
            "now": broker.now_ms(),
            "last_stable_offset": broker.log_state(*name).last_stable_offset,
            "high_watermark": broker.log_state(*name).high_watermark,
            "transactions": [_shown(request, one) for one in here],
        }
    )


@router.delete(
    "/v1/topics/{topic}/partitions/{partition}/transactions/{producer_id}",
    status_code=204,
    openapi_extra=openapi.ABORT_PARTITION_TRANSACTION,
    summary="Abort what a producer has open in a partition",
)
async def abort_partition_transaction(request: Request) -> Response:
    """Abort a hanging transaction in one partition.

    One that the coordinator knows is aborted in all its partitions.
    """
    name, producer_id = _partition(request), path_integer(request, "producer_id", maximum=INT64_MAX)
    broker_of(request).log_state(*name)
    await abort_in_partition(transactions_of(request).coordinator, name, producer_id=producer_id)
    _log(request, f"Topic:{name.topic} partition {name.partition}, producer {producer_id}")
    return Response(status_code=204)


def _partition(request: Request) -> TopicPartition:
    topic = broker_of(request).topic(str(request.path_params["topic"]))
    return TopicPartition(topic.name, path_integer(request, "partition"))
