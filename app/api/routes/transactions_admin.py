"""Administer transactions: list, describe, abort, and show open ones per partition."""

from __future__ import annotations

from typing import Annotated, TypedDict

from starlette.requests import Request

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
from ..parameters import (
    AFTER,
    PAGE,
    PARTITION,
    PRODUCER_ID,
    SEARCH_IDS,
    TOPIC,
    TRANSACTIONAL_ID,
    Choice,
    Flag,
    Number,
    Text,
)
from ..records.json_types import InPartition
from ..rights import is_seen, require
from ..routing import Routes
from ..schemas import Shown, one_of
from ..state import api_state, broker_of, transactions_of

route = Routes("transactions", errors=(503,))
_StateName = Annotated[str, one_of("TransactionState", *(state.value for state in TransactionState))]


class ListedTransaction(TypedDict):
    transactional_id: str
    state: _StateName
    producer_id: int
    started_at: int | None


class TransactionList(TypedDict):
    now: int
    open: int
    transactions: list[ListedTransaction]
    next_after: str | None
    total: int


class TransactionPartition(InPartition):
    first_offset: int | None
    holds_back: bool


class Transaction(TypedDict):
    transactional_id: str
    state: _StateName
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    now: int
    started_at: int | None
    partitions: list[TransactionPartition]


class OpenTransaction(InPartition):
    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    first_offset: int
    since: int
    hanging: bool
    holds_back: bool


class OpenTransactionList(TypedDict):
    now: int
    transactions: list[OpenTransaction]
    total: int


class PartitionTransactionList(TypedDict):
    now: int
    last_stable_offset: int
    high_watermark: int
    transactions: list[OpenTransaction]


_LIMIT = Number("limit", "ids per page", 1000, minimum=1, maximum=10_000)
_ROWS = Number("limit", "rows at most", 1000, minimum=1, maximum=10_000)
_STATE = Text("state", "only ids in one of these states", list[_StateName], style="form", explode=False)
_MIN_DURATION_MS = Number(
    "min_duration_ms",
    "only transactions that have been open for longer than this; -1: all ids",
    -1,
    minimum=-1,
)
_PATTERN = Text(
    "pattern", "only ids that match this regular expression as a whole", Annotated[str, Shown(maxLength=1000)]
)
_ORDER = Choice(
    "order",
    "TransactionOrder",
    ("id", "oldest"),
    "oldest: the transaction that has been open for longest first",
    default="id",
)
_HANGING = Flag("hanging", "only those that no coordinator knows")
_TOPIC = Text("topic", "only those in partitions of this topic")

_STATES = tuple(state.value for state in TransactionState)


@route(
    "GET /v1/transactions",
    "List transactional ids",
    _STATE,
    _MIN_DURATION_MS,
    _PATTERN,
    SEARCH_IDS,
    _ORDER,
    PAGE,
    _LIMIT,
    AFTER,
)
async def list_transactions(request: Request) -> TransactionList:
    """List transactional ids with their states, one page at a time; each filter that is given must match.

    `state` is a list, separated by commas. `min_duration_ms` selects transactions that have been open for longer. `pattern` is a
    regular expression that must match the whole id, `search` a text that the id contains. Pages are numbered from 1;
    alternatively, in the order of ids, `after` continues after the last id of a page. `order=oldest` begins with the
    transaction that has been open for longest. `started_at` is null if no transaction is open.
    """
    state = api_state(request)
    limit, number = _LIMIT.read(request), PAGE.read(request)
    matching = await _matching(request)
    if _order(request) == "oldest":
        matching.sort(key=_age_order)
    begin = (number - 1) * limit
    page = matching[begin : begin + limit]
    counts = state.transactions.coordinator.counts
    return {
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


def _order(request: Request) -> str:
    order = _ORDER.read(request)
    if order == "oldest" and AFTER.read(request):
        raise InvalidRequest("after continues in the order of ids; use page with order=oldest")
    return order


def _age_order(listing: TransactionListing) -> tuple[bool, int, str]:
    return listing.started_at_ms == NOT_STARTED, listing.started_at_ms, listing.transactional_id


async def _matching(request: Request) -> list[TransactionListing]:
    """Return the transactional ids that match the filters, sorted."""
    states = [name for name in _STATE.read(request).split(",") if name]
    for name in states:
        if name not in _STATES:
            raise InvalidRequest(f"state is {name[:40]!r}; it must be one of {', '.join(_STATES)}")
    min_duration_ms = _MIN_DURATION_MS.read(request)
    text = _PATTERN.read(request)
    try:
        pattern = LinearRegex(text) if text else None
    except InvalidPattern as error:
        raise InvalidRequest(f"pattern is {text[:100]!r}: {error}") from error
    wanted, after = SEARCH_IDS.read(request).lower(), AFTER.read(request)
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


@route("GET /v1/transactions/{transactional_id}", "Describe a transactional id", errors=(400, 404))
async def get_transaction(request: Request) -> Transaction:
    """Return the state, the producer and the partitions of the open transaction.

    While it ends, those without a marker.

    `holds_back` tells whether the transaction holds back the last stable offset of the partition: readers of committed
    records get nothing from `first_offset` on until it ends. `first_offset` is null if nothing was written there yet.
    """
    broker, transactions = broker_of(request), transactions_of(request).coordinator
    described = await transactions.describe(TRANSACTIONAL_ID.read(request))
    here = await transactions.open_in(described.partitions) if described.partitions else {}
    budget = WorkBudget()
    is_visible = is_seen(request, DESCRIBE_TOPIC)
    partitions: list[TransactionPartition] = []
    for name in described.partitions:
        await budget.visit()
        if not is_visible(name.topic):
            continue
        opened = next(
            (
                transaction
                for transaction in here.get(name, ())
                if transaction.producer_id == described.producer_id
            ),
            None,
        )
        partitions.append(
            {
                "topic": name.topic,
                "partition": name.partition,
                "first_offset": opened and opened.first_offset,
                "holds_back": opened is not None and opened.holds_back,
            }
        )
    return {
        "transactional_id": described.transactional_id,
        "state": described.state.value,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "timeout_ms": described.timeout_ms,
        "now": broker.now_ms(),
        "started_at": _time(described.started_at_ms),
        "partitions": partitions,
    }


@route(
    "DELETE /v1/transactions/{transactional_id}",
    "Abort the open transaction of a transactional id",
    errors=(400, 404, 409, 507),
)
async def terminate_transaction(request: Request) -> None:
    """Abort the open transaction, and fence its producer, which must begin again.

    Without one, this changes nothing.

    When this is answered, readers of committed records continue past the transaction in all its partitions.
    """
    name = TRANSACTIONAL_ID.read(request)
    await transactions_of(request).coordinator.abort(name)
    _log(request, f"TransactionalId:{name}")


def _log(request: Request, resource: str) -> None:
    log_change(
        peer_of(request.scope),
        principal=str(request.scope.get("stele.principal", ANONYMOUS)),
        operation="abort-transaction",
        resource=resource,
    )


# ── in the logs ──


@route("GET /v1/open-transactions", "List what is open in partitions", _HANGING, _TOPIC, _ROWS, errors=(404,))
async def list_open_transactions(request: Request) -> OpenTransactionList:
    """List the transactions that are open in the logs, oldest first.

    There is one row per partition.

    A transaction that no coordinator knows is *hanging*: its `transactional_id` is null, and `since` is the time of its
    last batch. `hanging=true` selects those. `total` counts what matches, `transactions` has at most `limit` of them.
    """
    broker, transactions = broker_of(request), transactions_of(request).coordinator
    limit = _ROWS.read(request)
    is_hanging_only = _HANGING.read(request)
    only_topic = _TOPIC.given(request)
    if only_topic is not None:
        require(request, DESCRIBE_TOPIC, [only_topic])
        only_topic = broker.topic(only_topic).name
    budget = WorkBudget()
    is_visible = is_seen(request, DESCRIBE_TOPIC)
    listed: list[PartitionTransaction] = []
    for name, here in (await transactions.open_in()).items():
        await budget.visit()
        if only_topic in (None, name.topic) and is_visible(name.topic):
            listed += (transaction for transaction in here if transaction.is_hanging or not is_hanging_only)
    listed.sort(key=lambda listed: (listed.since_ms, listed.topic_partition, listed.first_offset))
    return {
        "now": broker.now_ms(),
        "transactions": [_shown(request, transaction) for transaction in listed[:limit]],
        "total": len(listed),
    }


def _shown(request: Request, transaction: PartitionTransaction) -> OpenTransaction:
    transactional_id = transaction.transactional_id
    if transactional_id is not None and not is_seen(request, DESCRIBE_TRANSACTIONAL_ID)(transactional_id):
        transactional_id = None
    return {
        "topic": transaction.topic_partition.topic,
        "partition": transaction.topic_partition.partition,
        "transactional_id": transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "first_offset": transaction.first_offset,
        "since": transaction.since_ms,
        "hanging": transaction.is_hanging,
        "holds_back": transaction.holds_back,
    }


@route(
    "GET /v1/topics/{topic}/partitions/{partition}/transactions",
    "List what is open in a partition",
    errors=(404,),
)
async def list_partition_transactions(request: Request) -> PartitionTransactionList:
    """List the transactions that are open in a partition; the first one holds back its last stable offset."""
    broker, name = broker_of(request), _partition(request)
    broker.log_state(*name)
    here = (await transactions_of(request).coordinator.open_in([name])).get(name, ())
    return {
        "now": broker.now_ms(),
        "last_stable_offset": broker.log_state(*name).last_stable_offset,
        "high_watermark": broker.log_state(*name).high_watermark,
        "transactions": [_shown(request, transaction) for transaction in here],
    }


@route(
    "DELETE /v1/topics/{topic}/partitions/{partition}/transactions/{producer_id}",
    "Abort what a producer has open in a partition",
    errors=(404, 409, 507),
)
async def abort_partition_transaction(request: Request) -> None:
    """Abort a hanging transaction in one partition.

    One that the coordinator knows is aborted in all its partitions.
    """
    name, producer_id = _partition(request), PRODUCER_ID.number(request)
    broker_of(request).log_state(*name)
    await abort_in_partition(transactions_of(request).coordinator, name, producer_id=producer_id)
    _log(request, f"Topic:{name.topic} partition {name.partition}, producer {producer_id}")


def _partition(request: Request) -> TopicPartition:
    topic = broker_of(request).topic(TOPIC.read(request))
    return TopicPartition(topic.name, PARTITION.number(request))
