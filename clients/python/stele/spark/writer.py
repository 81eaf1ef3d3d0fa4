"""``df.write`` and ``df.writeStream`` into topics, each row once (ADR-0015).

Spark calls ``write`` in an executor, again after a task failed, and again with the same
rows when a micro-batch is repeated after a crash. What was stored then must not be
stored twice. So every task writes as a *named producer*: the name is that of the query
and of the task's partition, the version is the micro-batch. The broker gives the same
producer id and epoch to the same name and version, and tells that it had given them:
then what those have stored is read back, and left out. Within a task the sequences
make retries harmless, as in any idempotent producer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from .options import WriteOptions
from .rows import SinkRows, require_columns
from .sending import Identity, TopicWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..wire.arrow_types import RecordBatch

logger = logging.getLogger("stele.spark")

# Spark tells tasks of a streaming query where they belong, by these properties.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class WriteIdentityError(RuntimeError):
    """Spark does not say which task of which query this is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """What one task has done. ``repeated`` rows were stored by an attempt before it."""

    written: int
    repeated: int
    strays: int


class _Writer:
    """What both writers share; pickled to the executors, so it holds options and names alone."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        require_columns(schema, has_topic=options.topic is not None)
        self._options = options

    def _identity(self, task: TaskContext) -> Identity | None:
        raise NotImplementedError

    def write(self, iterator: Iterator[RecordBatch]) -> Written:
        task = TaskContext.get()
        if task is None:
            raise WriteIdentityError("rows are written outside of a Spark task; call write on a DataFrame")
        rows = SinkRows(topic=self._options.topic)
        identity = self._identity(task)
        with TopicWriter(self._options, identity, task_partition=task.partitionId()) as writer:
            for batch in iterator:
                has_timestamps = rows.has_timestamps(batch)
                for row in rows.of(batch):
                    writer.add(row, match_timestamp=has_timestamps)
            return self._summary(writer)

    def _summary(self, writer: TopicWriter) -> Written:
        writer.flush()
        return Written(written=writer.written, repeated=writer.repeated, strays=writer.strays)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """A batch write. Without ``txnAppId`` its tasks may be run again, the whole of it may not."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # Made once, in the driver: all attempts of a task get the same.
        self._job_id = str(uuid4())

    def _identity(self, task: TaskContext) -> Identity | None:
        options = self._options
        if not options.exactly_once:
            return None
        name = self._job_id if options.application_id is None else options.application_id
        return Identity(name=f"spark-batch/{name}/{task.partitionId()}", version=options.version or 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        report_strays(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """The micro-batches of a streaming query. The id of the query is in its checkpoint."""

    def _identity(self, task: TaskContext) -> Identity | None:
        if not self._options.exactly_once:
            return None
        query_id, batch_id = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        application = self._options.application_id or query_id
        if not application or not batch_id or not batch_id.isdigit():
            raise WriteIdentityError(
                f"this Spark does not tell its tasks {_QUERY_ID} and {_BATCH_ID}, which writing exactly once "
                "needs; use PySpark 4.3, or set exactlyOnce=false to write at least once"
            )
        return Identity(name=f"spark-stream/{application}/{task.partitionId()}", version=int(batch_id))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        report_strays(messages)


def report_strays(messages: list[WriterCommitMessage | None]) -> None:
    """Rows that an attempt had stored and its repetition did not have."""
    strays = sum(message.strays for message in messages if isinstance(message, Written))
    if strays:
        logger.warning(
            "%d rows that an earlier attempt had stored were not among the rows of its repetition: the query is "
            "not deterministic (rand, uuid, current time, or another number of partitions), so these rows and "
            "others in their place are both in the topic",
            strays,
        )
