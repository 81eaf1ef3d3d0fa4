"""The writers for ``df.write`` and ``df.writeStream``, exactly once (ADR-0015).

Spark calls ``write`` in an executor, again after a task failed, and again with the same
rows when it repeats a micro-batch after a crash. To store each row once, every task
writes as a *named producer*: its name is made of the query and the task's partition, its
version is the micro-batch. For a name and version that it has seen, the broker returns
the same producer id and epoch, and reports that they are resumed. The task then reads
back the rows that they stored, and leaves those out. Within a task, sequences make
retries harmless, as in any idempotent producer.
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

# Local properties in which Spark passes query and micro-batch to the tasks.
_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


class WriteIdentityError(RuntimeError):
    """Spark does not pass the query and micro-batch of a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(WriterCommitMessage):
    """The result of a task; an earlier attempt had stored ``repeated`` rows."""

    written: int
    repeated: int
    strays: int


class _Writer:
    """The base of both writers. Spark pickles it, so it holds only options and names."""

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
    """A batch write; without ``txnAppId`` its tasks may be repeated, but not the write."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        # Created once in the driver, so that all attempts of a task share it.
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
    """Writes the micro-batches of a streaming query, whose id is in its checkpoint."""

    def _identity(self, task: TaskContext) -> Identity | None:
        if not self._options.exactly_once:
            return None
        query_id, batch_id = task.getLocalProperty(_QUERY_ID), task.getLocalProperty(_BATCH_ID)
        application = self._options.application_id or query_id
        if not application or not batch_id or not batch_id.isdigit():
            raise WriteIdentityError(
                f"this Spark does not pass {_QUERY_ID} and {_BATCH_ID} to its tasks, which exactly-once writes "
                "need; use PySpark 4.3, or set exactlyOnce=false to write at least once"
            )
        return Identity(name=f"spark-stream/{application}/{task.partitionId()}", version=int(batch_id))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        report_strays(messages)


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
