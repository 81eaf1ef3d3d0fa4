"""Transactions over HTTP: a whole one in one request, or one that stays open over several (ADR-0034)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Annotated, TypedDict

import msgspec
from msgspec import Raw, Struct
from starlette.requests import Request
from starlette.responses import Response
from stele.wire.messages import Durability as AckedDurability
from stele.wire.notation import parse_whole

from ...broker.producing.produce import Acks, Produced
from ...errors import ConcurrentTransactions, InvalidRequest
from ...groups.base.messages import CommitRequest, OffsetToCommit
from ...security.acl import READ_GROUP, READ_TOPIC
from ...security.principal import ANONYMOUS
from ...transactions.atomic_requests import INTERNAL_PREFIX, AtomicRequest, IdempotencyKey
from ...transactions.messages import ProducerIdentity
from ...transactions.request_checks import check_transactional_id
from ...transactions.writes import LeaseToSettle, Settlements
from ...work_budget import TURN_BYTES
from ..errors import HttpError
from ..group_json import LeaseToken, Offset
from ..json_bodies import LIST_BYTES_MAX, JsonBody, json_answer
from ..openapi.operations import JSON, Content
from ..parameters import TRANSACTIONAL_ID, Header, Number
from ..record_encoding import ENCODE, plain_encoding_of
from ..records.json_types import Durability, NewTopicRecord, TransactionReceipt
from ..records.transaction_records import TransactionRecords
from ..requests import INT32_MAX, INT64_MAX
from ..rights import require, require_lease, require_write
from ..routing import Routes
from ..schemas import Shown
from ..settlement_forwarding import coordinators, forward, only_coordinator
from ..state import api_state, transactions_of

_KEY_CHARACTERS_MAX = 255
_EPOCH_MAX = 2**15 - 1

route = Routes("transactions", errors=(409, 503))


class TransactionalProducer(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class Transacted(TypedDict):
    records: list[TransactionReceipt]
    durability: Durability


class TransactionReceipts(TypedDict):
    records: list[TransactionReceipt]


class LeaseOfGroup(Struct, forbid_unknown_fields=True):
    """A lease that a transaction acknowledges."""

    group: str
    lease: LeaseToken


class OffsetOfGroup(Struct, forbid_unknown_fields=True):
    """An offset that a transaction commits; ``offset`` is that of the next record to read."""

    group: str
    topic: str
    partition: Annotated[int, Shown(minimum=0, maximum=INT32_MAX)]
    offset: Offset
    metadata: str = ""


class SettleBody(Struct, forbid_unknown_fields=True):
    """Leases and offsets that a transaction settles when it commits."""

    leases: list[LeaseOfGroup] = []
    offsets: list[OffsetOfGroup] = []


# They are decoded one by one, so that an error has an index.
_Records = Annotated[list[Raw], Shown(kind=list[NewTopicRecord])]


class TransactionBody(SettleBody, forbid_unknown_fields=True):
    """A whole transaction."""

    records: _Records = []


class TransactionRecordsJson(Struct, forbid_unknown_fields=True):
    """Records of a transaction."""

    records: _Records


_RECORDS_EXAMPLE = (
    '"records": [{"topic": "orders", "key": "N14228", "value": {"from": "EWR"}}, '
    '{"topic": "audit", "value": "order N14228"}]'
)
_OFFSETS_EXAMPLE = '"offsets": [{"group": "billing", "topic": "orders", "partition": 0, "offset": 1}]'
# Leases and offsets of one request, each checked and committed in about 10 µs.
_SETTLED_MAX = 10_000
_TRANSACTION = JsonBody(TransactionBody, f"{{{_RECORDS_EXAMPLE}, {_OFFSETS_EXAMPLE}}}", has_records=True)
_RECORDS = JsonBody(TransactionRecordsJson, f"{{{_RECORDS_EXAMPLE}}}", has_records=True)
_SETTLEMENT = JsonBody(SettleBody, f"{{{_OFFSETS_EXAMPLE}}}", bytes_max=LIST_BYTES_MAX)
_IDEMPOTENCY_KEY = Header(
    "Idempotency-Key",
    "chosen by the client: a repeated request gets the first answer",
    Annotated[str, Shown(minLength=1, maxLength=_KEY_CHARACTERS_MAX)],
)
_TIMEOUT_MS = Number(
    "timeout_ms",
    "the broker aborts a transaction that is open for longer",
    60_000,
    minimum=1,
    maximum=INT32_MAX,
)
_Whole = Annotated[int, Shown(minimum=0)]
_PRODUCER = (
    Header("Producer-Id", "required: the id that begin returned", _Whole),
    Header("Producer-Epoch", "required: the epoch that the last begin, commit or abort returned", _Whole),
)
_IDENTITY = [
    Content(JSON, TransactionalProducer, '{"transactional_id":"job-7","producer_id":4000,"producer_epoch":1}')
]


@route(
    "POST /v1/transactions",
    "Commit a transaction in one request",
    _IDEMPOTENCY_KEY,
    ENCODE,
    body=_TRANSACTION,
    answers=[Content(JSON, Transacted)],
    errors=(404, 422, 504, 507),
)
async def transact(request: Request) -> Response:
    """Append records to several topics, acknowledge leases and commit offsets: all of it, or nothing.

    Readers see the records when the answer arrives. With an `Idempotency-Key` the request may be repeated: if it was
    committed, the first answer comes again, even after a restart of the broker, with `Idempotent-Replayed: true`.
    """
    state = api_state(request)
    raw, body = await _TRANSACTION.read_raw(request)
    key = await _idempotency_key(request, raw)
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
        records = TransactionRecords(
            state.broker, partial(require_write, request), plain_encoding_of(request)
        )
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
    return Response(answer.body, headers=headers, media_type=JSON)


def _durability(produced: Sequence[Produced], is_shared: bool) -> AckedDurability:
    """Return that of the end of a transaction, which is synced at least."""
    return (
        min((each.durability for each in produced), default=AckedDurability.SYNCED)
        if is_shared
        else AckedDurability.SYNCED
    )


async def _idempotency_key(request: Request, raw: bytes) -> IdempotencyKey | None:
    text = _IDEMPOTENCY_KEY.given(request)
    if text is None:
        return None
    if not 0 < len(text) <= _KEY_CHARACTERS_MAX or not text.isascii() or not text.isprintable():
        raise InvalidRequest(
            f"Idempotency-Key is {text[:40]!r}; it must be 1 to {_KEY_CHARACTERS_MAX} printable ASCII characters"
        )
    owner = request.scope.get("stele.principal", ANONYMOUS).name
    # Of a large body that takes milliseconds per MiB, without the interpreter.
    digest = await asyncio.to_thread(_digest, raw) if len(raw) > TURN_BYTES else _digest(raw)
    return IdempotencyKey(key=text, digest=digest, owner=owner)


def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()


def _require(request: Request, leases: Sequence[LeaseOfGroup], offsets: Sequence[OffsetOfGroup]) -> None:
    """Raise HttpError 413 if this is too much, AuthorizationError if the client may not settle all of it."""
    if len(leases) + len(offsets) > _SETTLED_MAX:
        raise HttpError(
            413,
            f"the request has {len(leases) + len(offsets)} leases and offsets, more than the limit of {_SETTLED_MAX}; "
            "send them in several requests",
            limit=_SETTLED_MAX,
        )
    require(request, READ_GROUP, (part.group for part in (*leases, *offsets)))
    require(request, READ_TOPIC, (offset.topic for offset in offsets))
    for lease in leases:
        require_lease(request, lease.group, lease.lease)


def _groups(leases: Sequence[LeaseOfGroup], offsets: Sequence[OffsetOfGroup]) -> list[str]:
    return list(dict.fromkeys(part.group for part in (*leases, *offsets)))


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
    transactional_id = TRANSACTIONAL_ID.read(request)
    check_transactional_id(transactional_id)
    if transactional_id.startswith(INTERNAL_PREFIX):
        raise InvalidRequest(f"transactional ids that start with {INTERNAL_PREFIX} are the broker's own")
    return transactional_id


def _producer(request: Request) -> ProducerIdentity:
    """Return the fencing token of a request. Raises ``InvalidRequest``."""
    numbers: list[int] = []
    for header, maximum in zip(_PRODUCER, (INT64_MAX, _EPOCH_MAX), strict=True):
        text = header.given(request)
        number = None if text is None else parse_whole(text, maximum)
        if number is None:
            raise InvalidRequest(
                f"{header.name} is {text and text[:40]!r}; send Producer-Id and Producer-Epoch as the last begin, commit or "
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


@route(
    "POST /v1/transactions/{transactional_id}/begin",
    "Begin with a transactional id",
    _TIMEOUT_MS,
    answers=_IDENTITY,
)
async def begin_transaction(request: Request) -> Response:
    """Return the producer id and epoch for all requests of the next transactions.

    A producer that began with the id before is fenced: its requests get 409, and what it left open is aborted.
    """
    transactional_id = _transactional_id(request)
    timeout_ms = _TIMEOUT_MS.read(request)
    try:
        async with asyncio.timeout(api_state(request).settings.request_timeout_ms / 1000):
            producer = await transactions_of(request).atomic.begin(transactional_id, timeout_ms=timeout_ms)
    except TimeoutError:
        raise ConcurrentTransactions(transactional_id) from None
    return _producer_answer(transactional_id, producer)


@route(
    "POST /v1/transactions/{transactional_id}/records",
    "Append records in a transaction",
    *_PRODUCER,
    ENCODE,
    body=_RECORDS,
    errors=(404, 422, 504, 507),
)
async def append_to_transaction(request: Request) -> TransactionReceipts:
    """Append records to several topics; readers see them when the transaction commits.

    The first request after `begin`, a commit or an abort opens the transaction. If a request fails, abort the
    transaction. Send its requests one after the other.
    """
    state = api_state(request)
    transactional_id, producer = _transactional_id(request), _producer(request)
    body = await _RECORDS.read(request)
    if not body.records:
        raise InvalidRequest("the body has no records")
    records = TransactionRecords(state.broker, partial(require_write, request), plain_encoding_of(request))
    await records.add_all(body.records, records_max=state.settings.transaction_request_records_max)
    produced = await state.transactions.writes.append(
        transactional_id,
        producer,
        records.batches,
        acks=Acks.ALL,
        timeout_ms=state.settings.request_timeout_ms,
    )
    return {"records": records.receipts(produced)}


@route(
    "POST /v1/transactions/{transactional_id}/settle",
    "Settle leases and offsets in a transaction",
    *_PRODUCER,
    body=_SETTLEMENT,
    errors=(404, 504),
)
async def settle_transaction(request: Request) -> Response | None:
    """Acknowledge leases and commit offsets when the transaction commits.

    A lease no longer expires then; if the transaction aborts, it is given back.
    """
    transactional_id, producer = _transactional_id(request), _producer(request)
    body = await _SETTLEMENT.read(request)
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
    return None


@route(
    "POST /v1/transactions/{transactional_id}/commit",
    "Commit a transaction",
    *_PRODUCER,
    answers=_IDENTITY,
    errors=(507,),
)
async def commit_transaction(request: Request) -> Response:
    """Make the transaction visible and durable; return producer id and epoch for the next one.

    The request may be repeated, with the same headers, until it is answered.
    """
    return await _end(request, is_commit=True)


@route(
    "POST /v1/transactions/{transactional_id}/abort",
    "Abort a transaction",
    *_PRODUCER,
    answers=_IDENTITY,
    errors=(507,),
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
