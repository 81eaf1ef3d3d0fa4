"""Transactions over HTTP: a whole one in one request, or one that stays open over several (ADR-0034)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from functools import partial

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.messages import Durability
from stele.wire.notation import parse_whole

from ...broker.producing.produce import Acks, Produced
from ...errors import ConcurrentTransactions, InvalidRequest
from ...groups.base.messages import CommitRequest, OffsetToCommit
from ...security.acl import READ_GROUP, READ_TOPIC
from ...security.principal import ANONYMOUS
from ...transactions.atomic_requests import INTERNAL_PREFIX, AtomicRequest, IdempotencyKey
from ...transactions.messages import ProducerIdentity
from ...transactions.transactional_id import check_transactional_id
from ...transactions.writes import LeaseToSettle, Settlements
from ..bodies import LeaseOfGroup, OffsetOfGroup, SettleBody, TransactionBody
from ..encoded_slash import EncodedSlashRoute
from ..json_bodies import json_answer, json_body, raw_json_body
from ..openapi import transactions as openapi
from ..records.record_json import ProduceBody
from ..records.transaction_records import TransactionRecords
from ..requests import INT32_MAX, INT64_MAX, integer_parameter
from ..rights import require, require_lease, require_write
from ..settlement_forwarding import coordinators, forward, only_coordinator
from ..state import api_state, transactions_of

router = APIRouter(tags=["transactions"], route_class=EncodedSlashRoute)

_KEY_CHARACTERS_MAX = 255
_EPOCH_MAX = 2**15 - 1
_EXAMPLE = '{"records": [{"topic": "orders", "value": "x"}], "leases": [{"group": "billing", "lease": "…"}]}'
_SETTLE_EXAMPLE = '{"leases": [{"group": "billing", "lease": "…"}]}'
_RECORDS_EXAMPLE = '{"records": [{"topic": "orders", "value": "x"}]}'


@router.post(
    "/v1/transactions", openapi_extra=openapi.TRANSACT, summary="Commit a transaction in one request"
)
async def transact(request: Request) -> Response:
    """Append records to several topics, acknowledge leases and commit offsets: all of it, or nothing.

    Readers see the records when the answer arrives. With an `Idempotency-Key` the request may be repeated: if it was
    committed, the first answer comes again, even after a restart of the broker, with `Idempotent-Replayed: true`.
    """
    state = api_state(request)
    raw, body = await raw_json_body(request, TransactionBody, _EXAMPLE)
    key = _idempotency_key(request, raw)
    atomic = state.transactions.atomic
    answer = None if key is None else await atomic.repeated(key)
    if answer is None:
        if not (body.records or body.leases or body.offsets):
            raise InvalidRequest("the transaction is empty; give records, leases or offsets")
        _require(request, body.leases, body.offsets)
        elsewhere = only_coordinator(request, _groups(body.leases, body.offsets))
        if elsewhere is not None:
            member, group = elsewhere
            return await forward(request, group, member, raw)
        records = TransactionRecords(state.broker, partial(require_write, request))
        await records.add_all(body.records, records_max=state.settings.transaction_request_records_max)
        is_shared = state.broker.cluster.is_shared
        answer = await atomic.execute(
            AtomicRequest(
                batches=records.batches,
                settlements=_settlements(body.leases, body.offsets),
                answer_of=lambda produced: msgspec.json.encode(
                    {
                        "records": records.receipts(produced),
                        "durability": _durability(produced, is_shared).label,
                    }
                ),
                key=key,
            )
        )
    headers = {"Idempotent-Replayed": "true"} if answer.is_repeated else None
    return Response(answer.body, headers=headers, media_type="application/json")


def _durability(produced: Sequence[Produced], is_shared: bool) -> Durability:
    """Return that of the end of a transaction, which is synced at least."""
    return (
        min((each.durability for each in produced), default=Durability.SYNCED)
        if is_shared
        else Durability.SYNCED
    )


def _idempotency_key(request: Request, raw: bytes) -> IdempotencyKey | None:
    text = request.headers.get("idempotency-key")
    if text is None:
        return None
    if not 0 < len(text) <= _KEY_CHARACTERS_MAX or not text.isascii() or not text.isprintable():
        raise InvalidRequest(
            f"Idempotency-Key is {text[:40]!r}; it must be 1 to {_KEY_CHARACTERS_MAX} printable ASCII characters"
        )
    owner = request.scope.get("stele.principal", ANONYMOUS).name
    return IdempotencyKey(key=text, digest=hashlib.sha256(raw).digest(), owner=owner)


def _require(request: Request, leases: Sequence[LeaseOfGroup], offsets: Sequence[OffsetOfGroup]) -> None:
    """Raise AuthorizationError if the client may not settle all of this."""
    require(request, READ_GROUP, (one.group for one in (*leases, *offsets)))
    require(request, READ_TOPIC, (offset.topic for offset in offsets))
    for lease in leases:
        require_lease(request, lease.group, lease.lease)


def _groups(leases: Sequence[LeaseOfGroup], offsets: Sequence[OffsetOfGroup]) -> list[str]:
    return list(dict.fromkeys(one.group for one in (*leases, *offsets)))


def _settlements(leases: list[LeaseOfGroup], offsets: list[OffsetOfGroup]) -> Settlements:
    by_group: dict[str, list[OffsetToCommit]] = {}
    for offset in offsets:
        if not (0 <= offset.partition <= INT32_MAX and 0 <= offset.offset <= INT64_MAX):
            raise InvalidRequest(
                f"offset {offset.offset} of {offset.topic[:40]}-{offset.partition}: both numbers must not be "
                "negative, the partition at most 2³¹-1"
            )
        by_group.setdefault(offset.group, []).append(
            OffsetToCommit(
                topic=offset.topic,
                partition=offset.partition,
                offset=offset.offset,
                metadata=offset.metadata,
            )
        )
    return Settlements(
        leases=[LeaseToSettle(group=lease.group, token=lease.lease) for lease in leases],
        offsets=[CommitRequest(group=group, offsets=part) for group, part in by_group.items()],
    )


# ── transactions over several requests ──


def _transactional_id(request: Request) -> str:
    transactional_id = str(request.path_params["transactional_id"])
    check_transactional_id(transactional_id)
    if transactional_id.startswith(INTERNAL_PREFIX):
        raise InvalidRequest(f"transactional ids that start with {INTERNAL_PREFIX} are the broker's own")
    return transactional_id


def _producer(request: Request) -> ProducerIdentity:
    """Return the fencing token of a request. Raises ``InvalidRequest``."""
    numbers: list[int] = []
    for name, maximum in (("producer-id", INT64_MAX), ("producer-epoch", _EPOCH_MAX)):
        text = request.headers.get(name)
        number = None if text is None else parse_whole(text, maximum)
        if number is None:
            raise InvalidRequest(
                f"{name} is {text and text[:40]!r}; send Producer-Id and Producer-Epoch as the last begin, commit or "
                "abort of this transactional id returned them"
            )
        numbers.append(number)
    return ProducerIdentity(*numbers)


def _producer_answer(transactional_id: str, producer: ProducerIdentity) -> Response:
    answer = json_answer(
        {
            "transactional_id": transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
        }
    )
    # In the form in which the next request sends them.
    answer.headers["Producer-Id"] = str(producer.producer_id)
    answer.headers["Producer-Epoch"] = str(producer.epoch)
    return answer


@router.post(
    "/v1/transactions/{transactional_id}/begin",
    openapi_extra=openapi.BEGIN,
    summary="Begin with a transactional id",
)
async def begin_transaction(request: Request) -> Response:
    """Return the producer id and epoch for all requests of the next transactions.

    A producer that began with the id before is fenced: its requests get 409, and what it left open is aborted.
    """
    transactional_id = _transactional_id(request)
    timeout_ms = integer_parameter(request, "timeout_ms", 60_000, minimum=1, maximum=INT32_MAX)
    try:
        async with asyncio.timeout(api_state(request).settings.request_timeout_ms / 1000):
            producer = await transactions_of(request).atomic.begin(transactional_id, timeout_ms=timeout_ms)
    except TimeoutError:
        raise ConcurrentTransactions(transactional_id) from None
    return _producer_answer(transactional_id, producer)


@router.post(
    "/v1/transactions/{transactional_id}/records",
    openapi_extra=openapi.RECORDS,
    summary="Append records in a transaction",
)
async def append_to_transaction(request: Request) -> Response:
    """Append records to several topics; readers see them when the transaction commits.

    The first request after `begin`, a commit or an abort opens the transaction. If a request fails, abort the
    transaction. Send its requests one after the other.
    """
    state = api_state(request)
    transactional_id, producer = _transactional_id(request), _producer(request)
    body = await json_body(request, ProduceBody, _RECORDS_EXAMPLE)
    if not body.records:
        raise InvalidRequest("the body has no records")
    records = TransactionRecords(state.broker, partial(require_write, request))
    await records.add_all(body.records, records_max=state.settings.transaction_request_records_max)
    produced = await state.transactions.writes.append(
        transactional_id,
        producer,
        records.batches,
        acks=Acks.ALL,
        timeout_ms=state.settings.request_timeout_ms,
    )
    return json_answer({"records": records.receipts(produced)})


@router.post(
    "/v1/transactions/{transactional_id}/settle",
    status_code=204,
    openapi_extra=openapi.SETTLE,
    summary="Settle leases and offsets in a transaction",
)
async def settle_transaction(request: Request) -> Response:
    """Acknowledge leases and commit offsets when the transaction commits.

    A lease no longer expires then; if the transaction aborts, it is given back.
    """
    transactional_id, producer = _transactional_id(request), _producer(request)
    body = await json_body(request, SettleBody, _SETTLE_EXAMPLE)
    _require(request, body.leases, body.offsets)
    for member, groups in coordinators(request, _groups(body.leases, body.offsets)):
        leases = [lease for lease in body.leases if lease.group in groups]
        offsets = [offset for offset in body.offsets if offset.group in groups]
        if member is None:
            await transactions_of(request).writes.settle(
                transactional_id, producer, _settlements(leases, offsets)
            )
            continue
        part = msgspec.json.encode(SettleBody(leases=leases, offsets=offsets))
        answer = await forward(request, groups[0], member, part)
        if answer.status_code >= 400:
            return answer
    return Response(status_code=204)


@router.post(
    "/v1/transactions/{transactional_id}/commit", openapi_extra=openapi.END, summary="Commit a transaction"
)
async def commit_transaction(request: Request) -> Response:
    """Make the transaction visible and durable; return producer id and epoch for the next one.

    The request may be repeated, with the same headers, until it is answered.
    """
    return await _end(request, is_commit=True)


@router.post(
    "/v1/transactions/{transactional_id}/abort", openapi_extra=openapi.END, summary="Abort a transaction"
)
async def abort_transaction(request: Request) -> Response:
    """Drop what the transaction wrote; return producer id and epoch for the next one.

    The leases that it settled are given back. The request may be repeated, with the same headers.
    """
    return await _end(request, is_commit=False)


async def _end(request: Request, *, is_commit: bool) -> Response:
    transactional_id, producer = _transactional_id(request), _producer(request)
    following = await transactions_of(request).coordinator.end(
        transactional_id, producer, commit=is_commit, bumps_epoch=True
    )
    return _producer_answer(transactional_id, following)
