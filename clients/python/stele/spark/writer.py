"""The writers for ``df.write`` and ``df.writeStream``, exactly once.

Spark calls ``write`` in an executor, again after a task failed, and again with the same
rows when it repeats a micro-batch after a crash. Two methods store each row once.

*In transactions* (ADR-0037, the default of streams): every attempt of a task writes in a
transaction of its own, and ``commit`` in the driver commits those of all tasks as one.

*Without* (ADR-0015): every task writes as a *named producer*: its name is made of the query
and the task's partition, its version is the micro-batch. For a name and version that it has
seen, the broker returns the same producer id and epoch, and reports that they are resumed.
The task then reads back the rows that they stored, and leaves those out. Within a task,
sequences make retries harmless, as in any idempotent producer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ..errors import AuthorizationError
from .fetching import Broker
from .options import WriteOptions
from .rows import SinkRows, require_columns
from .sending import Identity, TopicWriter
from .transactions import Committed, TaskResult, TaskTransaction, WriteUnit, abort_results, commit_unit

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..wire.arrow_types import RecordBatch
    from .encoding import Encoding

logger: logging.Logger = logging.getLogger("stele.spark")

# Local properties in which Spark passes query and micro-batch to the tasks.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class WriteIdentityError(RuntimeError):
    """Spark does not pass the query and micro-batch of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """The result of a task; an earlier attempt had stored ``repeated`` rows.

    With transactions, ``unit`` is what the driver commits, and ``result`` what this attempt wrote of it. Without,
    ``committed`` says that a run with transactions had committed the unit: the rows of all tasks are left out.
    """

    written: int
    repeated: int
    strays: int
    unit: WriteUnit | None = None
    result: TaskResult | None = None
    committed: Committed | None = None
    topics: tuple[str, ...] = ()


class _Writer:
    """The base of both writers. Spark pickles it, so it holds only options and names."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        schemas = options.schemas
        encoded = () if schemas is None else [column.column for column in schemas.columns]
        require_columns(schema, has_topic=options.topic is not None, encoded=encoded)
        self._options = options
        self._encoding: Encoding | None = None
        if schemas is not None:
            from .encoding import Encoding

            # Once, in the driver: the tasks of a write have the same schema.
            self._encoding = Encoding.of(schemas, schema)

    def _unit(self, task: TaskContext) -> WriteUnit | None:
        """Return what the rows belong to; None if they cannot be told from those of another write."""
        raise NotImplementedError

    def _identity(self, task: TaskContext, unit: WriteUnit | None) -> Identity | TaskTransaction | None:
        if unit is None:
            return None
        partition = task.partitionId()
        if not self._options.transactional:
            return Identity(name=unit.producer_name(partition), version=unit.number)
        return TaskTransaction(
            unit=unit,
            transactional_id=unit.task_id(partition=partition, attempt=task.attemptNumber()),
            timeout_ms=self._options.transaction_timeout_ms,
        )

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        task = TaskContext.get()
        if task is None:
            raise WriteIdentityError("rows are written outside of a Spark task; call write on a DataFrame")
        encoding = self._encoding
        rows = SinkRows(topic=self._options.topic, encoders=encoding and encoding.encoders())
        unit = self._unit(task)
        identity = self._identity(task, unit)
        if isinstance(identity, Identity) and unit is not None:
            # By a run with transactions, which Spark does not know to be complete.
            committed = self._committed(unit)
            if committed is not None:
                left_out = [row.topic for batch in iterator for row in rows.of(batch)]
                return Written(
                    written=0,
                    repeated=len(left_out),
                    strays=0,
                    unit=unit,
                    committed=committed,
                    topics=tuple(sorted(set(left_out))),
                )
        with TopicWriter(self._options, identity, task_partition=task.partitionId()) as writer:
            for batch in iterator:
                has_timestamps = rows.has_timestamps(batch)
                for row in rows.of(batch):
                    writer.add(row, match_timestamp=has_timestamps)
            return self._summary(writer, unit)

    def _committed(self, unit: WriteUnit) -> Committed | None:
        """Return the record of the unit, if a run with transactions has committed it."""
        if unit.kind == "batch" and self._options.application_id is None:
            return None
        with Broker(self._options.connection) as broker:
            try:
                last = unit.last_committed(broker)
            except AuthorizationError:
                # Without the right to this topic, no run has written it.
                return None
        return last if unit.check(last) else None

    def _summary(self, writer: TopicWriter, unit: WriteUnit | None) -> Written:
        writer.flush()
        return Written(
            written=writer.written,
            repeated=writer.repeated,
            strays=writer.strays,
            unit=unit,
            result=writer.result,
        )

    # Spark passes the micro-batch of a stream.
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803
        report_strays(messages)
        _report_repetition(messages)
        results = _results(messages)
        units = {message.unit for message in messages if isinstance(message, Written)} - {None}
        # A unit without rows is committed by doing nothing.
        if results:
            (unit,) = units
            assert unit is not None
            commit_unit(self._options, unit, results, partitions=len(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int = -1) -> None:  # noqa: N803
        results = _results(messages)
        if results:
            abort_results(self._options, results)


def _report_repetition(messages: list[WriterCommitMessage | None]) -> None:
    """Report the rows that tasks without transactions left out. Raises CommitError."""
    left_out = [message for message in messages if isinstance(message, Written) and message.committed]
    if left_out:
        first = left_out[0]
        assert first.unit is not None
        assert first.committed is not None
        topics = {topic for message in left_out for topic in message.topics}
        first.unit.report_repetition(
            first.committed, topics=topics, rows=sum(message.repeated for message in left_out)
        )


def _results(messages: list[WriterCommitMessage | None]) -> list[TaskResult]:
    return [
        message.result for message in messages if isinstance(message, Written) and message.result is not None
    ]


class BatchWriter(_Writer, DataSourceArrowWriter):
    """A batch write; without ``txnAppId`` its tasks may be repeated, but not the write."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # Created once in the driver, so that all attempts of a task share it.
        self._job_id = str(uuid4())

    def _unit(self, task: TaskContext) -> WriteUnit | None:
        options = self._options
        if not options.exactly_once:
            return None
        name = self._job_id if options.application_id is None else options.application_id
        return WriteUnit(
            kind="batch",
            application=name,
            query_id="",
            number=options.version or 0,
            target=options.topic or "",
        )


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query, whose id is in its checkpoint."""

    def _unit(self, task: TaskContext) -> WriteUnit | None:
        if not self._options.exactly_once:
            return None
        query_id, batch_id = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        application = self._options.application_id or query_id
        if not application or not batch_id or not batch_id.isdigit():
            raise WriteIdentityError(
                f"this Spark does not pass {_QUERY_ID} and {_BATCH_ID} to its tasks, which exactly-once writes "
                "need; use PySpark 4.3, or set exactlyOnce=false to write at least once"
            )
        return WriteUnit(
            kind="stream", application=application, query_id=query_id or "", number=int(batch_id)
        )


def report_strays(messages: list[WriterCommitMessage | None]) -> None:
    """Log a warning for rows that an earlier attempt stored and its repetition lacks."""
    strays = sum(message.strays for message in messages if isinstance(message, Written))
    if strays:
        logger.warning(
            "%d rows that an earlier attempt had stored were not among the rows of its repetition: the query is "
            "not deterministic (rand, uuid, current time, or another number of partitions), so these rows and "
            "others in their place are both in the topic",
            strays,
        )
