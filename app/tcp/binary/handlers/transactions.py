"""Transactions: begin with a transactional id, and end what was written with it."""

from __future__ import annotations

from stele.wire import messages as m

from ....security.acl import WRITE_TRANSACTIONAL_ID
from ....transactions.joint_commits import Member
from ....transactions.messages import ProducerIdentity
from ...response_queue import Buffers
from .context import BinaryListener


async def init_transactions(listener: BinaryListener, request: m.InitTransactionsRequest) -> Buffers:
    producer = await listener.transactions.init_producer_id(
        request.transactional_id, timeout_ms=request.timeout_ms
    )
    return m.InitTransactionsResponse(
        producer_id=producer.producer_id, producer_epoch=producer.epoch
    ).encode()


async def init_unless_open(listener: BinaryListener, request: m.InitUnlessOpenRequest) -> Buffers:
    producer = await listener.transactions.init_producer_id(
        request.transactional_id, timeout_ms=request.timeout_ms, unless_open=True
    )
    return m.InitUnlessOpenResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch).encode()


async def end_transaction(listener: BinaryListener, request: m.EndTransactionRequest) -> Buffers:
    producer = await listener.transactions.end(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        commit=request.is_commit,
        bumps_epoch=True,
    )
    return m.EndTransactionResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch).encode()


async def commit_transactions(listener: BinaryListener, request: m.CommitTransactionsRequest) -> Buffers:
    members = [
        Member(
            transaction.transactional_id,
            ProducerIdentity(transaction.producer_id, transaction.producer_epoch),
        )
        for transaction in request.transactions
    ]
    commits, prefix = listener.transactions.joint_commits, request.abandoned_prefix
    ids = {member.transactional_id for member in members}
    abandoned = [] if prefix is None else await commits.open_ids(prefix, besides=ids)
    access = listener.access
    if access is not None and not all(access.allows(WRITE_TRANSACTIONAL_ID, one) for one in abandoned):
        # Without the ids, which the client may not see.
        raise WRITE_TRANSACTIONAL_ID.error(str(access.principal), prefix or "")
    await commits.commit(members, abandoned=abandoned)
    return m.CommitTransactionsResponse().encode()
