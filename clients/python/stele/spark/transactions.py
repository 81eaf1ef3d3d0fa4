"""The transactions of a write: one per task, committed as one by the driver (ADR-0037).

::

    task    ─▶ begins with a free id of its query, partition and attempt ─▶ rows ─▶ commit message
    driver  ─▶ begins with an id of the query, which fences other drivers
            ─▶ is this unit already committed? ─▶ records its number ─▶ commits tasks and record as one

An attempt whose message does not reach the driver is never committed. The number is in a topic of the
query, so a unit is committed once, whichever driver repeats it.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Literal, cast
from urllib.parse import quote

from ..errors import ProducerStateError, SteleClientError, TransactionError
from ..operations.produce import BeginProducerVersion, GetProducerState
from ..operations.transactional import (
    CommitTransactions,
    EndTransaction,
    InitTransactions,
    InitUnlessOpen,
    WrittenTransaction,
)
from ..producing.chunks import ChunkSender, OpenChunk
from ..producing.last_record import last_committed_value
from ..wire.error_codes import ErrorCode
from ..wire.record_batch import Row
from .fetching import Broker
from .options import WriteOptions

logger: logging.Logger = logging.getLogger("stele.spark")

# The newest record counts; what is older may go.
COMMITS_CONFIGS = {
    "retention.ms": "-1",
    "retention.bytes": str(16 * 1024 * 1024),
    "segment.bytes": "4194304",
}
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_RECORD_KEY = b"commit"
# Transactions of attempts with one number that are open at the same time: those of runs that were killed.
_OPEN_PER_ATTEMPT_MAX = 1000


class CommitError(RuntimeError):
    """A micro-batch, or a batch write, cannot be committed; none of its rows are visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteUnit:
    """The unit that is written exactly once: a micro-batch, or a batch write with a version.

    ``query_id`` is empty for batch writes. ``target`` is the topic that the option names, empty if a column has
    the topics: batch writes of one application and number to different topics are different units. ``number``
    grows from one unit of an application and target to the next.
    """

    kind: Literal["stream", "batch"]
    application: str
    query_id: str
    number: int
    target: str = ""

    @property
    def prefix(self) -> str:
        """The common prefix of the transactional ids of all tasks, and of no others."""
        target = f"{quote(self.target, safe='')}/" if self.kind == "batch" else ""
        return f"spark-{self.kind}/{quote(self.application, safe='')}/{target}"

    def task_id(self, *, partition: int, attempt: int) -> str:
        return f"{self.prefix}{partition}/{attempt}"

    @property
    def driver_id(self) -> str:
        return f"{self.prefix}driver"

    def producer_name(self, partition: int) -> str:
        """Return the name of the producer of a task that writes without transactions."""
        return f"{self.prefix}{partition}"

    @property
    def topic(self) -> str:
        """The topic that records which units are committed."""
        name = self.application if not self.target else f"{self.application}.{_digest(self.target, 8)}"
        if _TOPIC_NAME.fullmatch(name) is None:
            name = _digest(name, 16)
        return f"__spark_commits.{self.kind}.{name}"

    def __str__(self) -> str:
        if self.kind == "stream":
            return f"micro-batch {self.number} of query {self.application}"
        to = f" to topic {self.target}" if self.target else ""
        return f"txnVersion {self.number} of txnAppId {self.application}{to}"

    def last_committed(self, broker: Broker) -> Committed | None:
        """Return what was committed last for the application and target.

        Raises SteleClientError.
        """
        value = broker.patiently(lambda: last_committed_value(broker.client, self.topic))
        return None if value is None else Committed.decode(value)

    def check(self, last: Committed | None) -> bool:
        """Return whether the unit is the one that was committed last.

        Raises:
            CommitError: a later unit is, or one of another query with the same application.
        """
        if last is None or self.number > last.number:
            return False
        if last.number > self.number or last.query_id != self.query_id:
            other = (
                "" if last.query_id == self.query_id else f" of another checkpoint (query {last.query_id})"
            )
            raise CommitError(
                f"{self} cannot be written, because number {last.number}{other} is committed under the same name: a "
                "new checkpoint begins at 0 again; set another txnAppId"
            )
        return True

    def report_repetition(self, committed: Committed, *, topics: Iterable[str], rows: int) -> None:
        """Log how many rows of a unit that is committed already are left out.

        Raises:
            CommitError: the rows of a batch write are for other topics, so it is no repetition.
        """
        others = sorted(set(topics) - set(committed.topics))
        if self.kind == "batch" and others:
            raise CommitError(
                f"{self} is committed already, with rows for {', '.join(committed.topics) or 'no topic'} only, and "
                f"this write has rows for {', '.join(others)}: two writes have the same name and number; give each a "
                "txnAppId of its own"
            )
        logger.warning(
            "%s was committed before, with %d rows; the %d rows of its repetition are left out. If they are other "
            "rows, give the write another txnAppId, or a larger txnVersion",
            self,
            committed.rows,
            rows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The record of a committed unit: its number, its topics and how many rows it has."""

    number: int
    query_id: str
    topics: tuple[str, ...]
    rows: int

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> Committed:
        document = cast("dict[str, Any]", json.loads(value))
        return cls(
            number=int(document["number"]),
            query_id=str(document["query_id"]),
            topics=tuple(document["topics"]),
            rows=int(document["rows"]),
        )


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTransaction:
    """The transaction of one attempt of a task."""

    unit: WriteUnit
    transactional_id: str
    timeout_ms: int

    def begin(self, broker: Broker) -> WrittenTransaction:
        """Begin with the id, or with the first one after it that has no open transaction.

        An open one may be that of a finished task, and this attempt a zombie of another run, stage attempt or
        micro-batch with the same number. The commit aborts those that do not count, and their ids are used again.

        Raises SteleClientError.
        """
        for number in range(_OPEN_PER_ATTEMPT_MAX):
            transactional_id = f"{self.transactional_id}/{number}" if number else self.transactional_id
            begin = InitUnlessOpen(transactional_id=transactional_id, timeout_ms=self.timeout_ms)
            try:
                producer = broker.call(begin)
            except TransactionError as error:
                if error.code != ErrorCode.INVALID_TXN_STATE:
                    raise
            else:
                return WrittenTransaction(transactional_id=transactional_id, producer=producer)
        raise TransactionError(
            f"{_OPEN_PER_ATTEMPT_MAX} transactions of attempts like {self.transactional_id!r} are open, of runs that "
            "were killed; wait until transactionTimeout has passed, or abort them with: stele transactions abort"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of an attempt; ``topics`` are names with their partitions."""

    transaction: WrittenTransaction
    topics: tuple[tuple[str, int], ...]
    rows: int


def commit_unit(
    options: WriteOptions, unit: WriteUnit, results: Sequence[TaskResult], *, partitions: int
) -> bool:
    """Commit what the tasks have written, unless the unit is committed already; return whether it was not.

    ``partitions`` is the number of tasks, including those that had no rows.

    Raises:
        CommitError: nothing was committed.
        SteleClientError: the broker did not answer in time. The unit may be committed; repeat it.
    """
    with Broker(options.connection) as broker:
        try:
            return _commit(broker, options, unit, results, partitions=partitions)
        except CommitError:
            _abort(broker, results)
            raise


def _commit(
    broker: Broker, options: WriteOptions, unit: WriteUnit, results: Sequence[TaskResult], *, partitions: int
) -> bool:
    client = broker.client
    begin = InitTransactions(transactional_id=unit.driver_id, timeout_ms=options.transaction_timeout_ms)
    # Another driver that was about to commit can no longer do so, and what it has committed is visible.
    producer = broker.call(begin)
    last = unit.last_committed(broker)
    topics = sorted({topic for result in results for topic, _ in result.topics})
    rows = sum(result.rows for result in results)
    if last is not None and unit.check(last):
        unit.report_repetition(last, topics=topics, rows=rows)
        _abort(broker, results)
        return False
    if last is None:
        _check_never_begun_without(broker, unit, results, partitions=partitions)
        broker.patiently(lambda: client.ensure_topic(unit.topic, partitions=1, configs=COMMITS_CONFIGS))
    committed = Committed(number=unit.number, query_id=unit.query_id, topics=tuple(topics), rows=rows)
    # The commit syncs the record.
    sender = ChunkSender(client, patience_s=options.connection.broker_timeout_ms / 1000, acks=1)
    sender.producer, sender.transactional_id = producer, unit.driver_id
    row: Row = (time.time_ns() // 1_000_000, _RECORD_KEY, committed.encode(), [])
    sender.close(unit.topic, 0, OpenChunk(rows=[row]))
    own = WrittenTransaction(transactional_id=unit.driver_id, producer=producer)
    commit = CommitTransactions(
        transactions=[*(result.transaction for result in results), own], abandoned_prefix=unit.prefix
    )
    try:
        sender.send()
        broker.call(commit)
    except ProducerStateError as error:
        raise CommitError(
            f"{unit} was not committed, and none of its rows are visible ({error}). Either another run of the query "
            f"has begun, or it took more than {options.transaction_timeout_ms} ms from the first row to the commit: then "
            "make micro-batches smaller, or raise transactionTimeout and STELE_TRANSACTION_MAX_TIMEOUT_MS of the broker"
        ) from error
    return True


def abort_results(options: WriteOptions, results: Sequence[TaskResult]) -> None:
    """Abort what tasks have written for a unit that failed.

    If that fails, the broker does after the timeout.
    """
    with Broker(options.connection) as broker:
        _abort(broker, results)


def _abort(broker: Broker, results: Sequence[TaskResult]) -> None:
    for result in results:
        if not abort_transaction(lambda end: broker.client.call(end), result.transaction):
            return


def abort_transaction(call: Callable[[EndTransaction], object], written: WrittenTransaction) -> bool:
    """Abort with one attempt; return whether the broker has answered."""
    end = EndTransaction(
        transactional_id=written.transactional_id, producer=written.producer, is_commit=False
    )
    try:
        call(end)
    except SteleClientError as error:
        # Another process has ended it, or the next attempt with this id or the timeout will.
        logger.info("transaction %r was not aborted: %s", written.transactional_id, error)
        return not error.retriable
    return True


def _check_never_begun_without(
    broker: Broker, unit: WriteUnit, results: Sequence[TaskResult], *, partitions: int
) -> None:
    """Check that no rows of the unit were written without transactions.

    An earlier run of the query may have done that.

    Raises CommitError, SteleClientError.
    """
    topics = {topic for result in results for topic in result.topics}
    for partition in range(partitions):
        begin = BeginProducerVersion(name=unit.producer_name(partition), version=unit.number)
        producer = broker.call(begin)
        if not producer.is_resumed:
            continue
        for topic, count in sorted(topics):
            for number in range(count):
                get = GetProducerState(topic=topic, partition=number, producer_id=producer.producer_id)
                state = broker.call(get)
                if state.producer_epoch == producer.producer_epoch and state.last_sequence >= 0:
                    raise CommitError(
                        f"rows of {unit} were written without transactions before the query was stopped; run it with "
                        "transactional=false until this is complete, then without the option again"
                    )
