"""Administration of transactions, over HTTP only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ..records import TopicPartition
from .base import HttpAnswer, HttpRequest, NoResult, Operation, segment, topic_path

D = TypeVar("D")

_PATH = "/v1/transactions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTransaction:
    """``open_ms`` is how long the transaction has been open; None if none is open."""

    transactional_id: str
    state: str
    producer_id: int
    open_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPartition:
    """``first_offset`` is None if nothing was written yet.

    ``holds_back``: readers wait for this transaction.
    """

    topic: str
    partition: int
    first_offset: int | None
    holds_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    open_ms: int | None
    partitions: list[TransactionPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A producer's open transaction in one partition.

    ``transactional_id`` is None if the transaction hangs; then ``open_ms`` is the time since its last batch.
    """

    topic: str
    partition: int
    transactional_id: str | None
    producer_id: int
    first_offset: int
    open_ms: int
    holds_back: bool


class ListTransactions(Operation[tuple[list[ListedTransaction], int]]):
    """List the first page of transactions, oldest first: ``(transactions, total)``."""

    is_repeatable = True
    states: tuple[str, ...] = ()
    min_duration_ms: int = -1
    pattern: str = ""
    limit: int = 1000

    def to_http(self) -> HttpRequest:
        params = {
            "order": "oldest",
            "limit": str(self.limit),
            "min_duration_ms": str(self.min_duration_ms),
            "pattern": self.pattern,
            "state": ",".join(self.states),
        }
        return HttpRequest(method="GET", path=_PATH, params=params)

    def from_http(self, answer: HttpAnswer) -> tuple[list[ListedTransaction], int]:
        document = answer.json()
        return _listed(ListedTransaction, document), document["total"]


def _listed(cls: type[D], document: Mapping[str, Any]) -> list[D]:
    return [_opened(cls, transaction, document["now"]) for transaction in document["transactions"]]


def _opened(cls: type[D], transaction: Mapping[str, Any], now_ms: int) -> D:
    """Return a transaction with ``open_ms`` instead of the time of its begin."""
    since_ms = transaction["since"] if "since" in transaction else transaction["started_at"]
    open_ms = None if since_ms is None else max(0, now_ms - since_ms)
    return msgspec.convert({**transaction, "open_ms": open_ms}, cls)


class DescribeTransaction(Operation[DescribedTransaction]):
    is_repeatable = True
    transactional_id: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=f"{_PATH}/{segment(self.transactional_id)}")

    def from_http(self, answer: HttpAnswer) -> DescribedTransaction:
        document = answer.json()
        return _opened(DescribedTransaction, document, document["now"])


class AbortTransaction(NoResult):
    """Abort the open transaction of an id, and fence its producer; without one, nothing changes."""

    is_repeatable = True
    transactional_id: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="DELETE", path=f"{_PATH}/{segment(self.transactional_id)}")


class AbortInPartition(NoResult):
    """Abort what a producer has open in a partition."""

    partition: TopicPartition
    producer_id: int

    def to_http(self) -> HttpRequest:
        topic, partition = self.partition
        path = topic_path(topic, "partitions", str(partition), "transactions", str(self.producer_id))
        return HttpRequest(method="DELETE", path=path)


class ListOpenTransactions(Operation[tuple[list[OpenTransaction], int]]):
    """List what is open in partitions, oldest first: ``(transactions, total)``."""

    is_repeatable = True
    hanging: bool = False
    topic: str | None = None

    def to_http(self) -> HttpRequest:
        params = {"hanging": str(self.hanging).lower()}
        if self.topic is not None:
            params["topic"] = self.topic
        return HttpRequest(method="GET", path="/v1/open-transactions", params=params)

    def from_http(self, answer: HttpAnswer) -> tuple[list[OpenTransaction], int]:
        document = answer.json()
        return _listed(OpenTransaction, document), document["total"]
