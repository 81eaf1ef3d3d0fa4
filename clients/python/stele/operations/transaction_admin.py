"""Administration of transactions, over HTTP only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..records import TopicPartition
from .base import HttpAnswer, HttpRequest, NoResult, Operation, segment, topic_path

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

    partition: TopicPartition
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

    partition: TopicPartition
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
        listed = [
            ListedTransaction(
                transactional_id=one["transactional_id"],
                state=one["state"],
                producer_id=one["producer_id"],
                open_ms=_open_ms(document, one["started_at"]),
            )
            for one in document["transactions"]
        ]
        return listed, document["total"]


def _open_ms(document: Mapping[str, Any], since: int | None) -> int | None:
    return None if since is None else max(0, document["now"] - since)


class DescribeTransaction(Operation[DescribedTransaction]):
    is_repeatable = True
    transactional_id: str

    def to_http(self) -> HttpRequest:
        return HttpRequest(method="GET", path=f"{_PATH}/{segment(self.transactional_id)}")

    def from_http(self, answer: HttpAnswer) -> DescribedTransaction:
        document = answer.json()
        return DescribedTransaction(
            transactional_id=document["transactional_id"],
            state=document["state"],
            producer_id=document["producer_id"],
            producer_epoch=document["producer_epoch"],
            timeout_ms=document["timeout_ms"],
            open_ms=_open_ms(document, document["started_at"]),
            partitions=[
                TransactionPartition(
                    partition=TopicPartition(one["topic"], one["partition"]),
                    first_offset=one["first_offset"],
                    holds_back=one["holds_back"],
                )
                for one in document["partitions"]
            ],
        )


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
        listed = [
            OpenTransaction(
                partition=TopicPartition(one["topic"], one["partition"]),
                transactional_id=one["transactional_id"],
                producer_id=one["producer_id"],
                first_offset=one["first_offset"],
                open_ms=max(0, document["now"] - one["since"]),
                holds_back=one["holds_back"],
            )
            for one in document["transactions"]
        ]
        return listed, document["total"]
