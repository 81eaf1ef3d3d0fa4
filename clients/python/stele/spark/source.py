"""The data source ``stele``, the entry point of Spark.

No filters are pushed down: PySpark 4.3 keeps one plan for each DataFrame and
overwrites it when a filter is pushed, so ``df.count()`` after ``df.where(…)`` would
count the filtered rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ..wire.notation import parse_boolean
from .options import FORMAT, OptionError, ReadOptions, Use
from .parsing import parse_decoding, parse_read_options, parse_write_options
from .schema import read_columns, spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .batch_reader import BatchReader, Columns
    from .decoding import Decoding
    from .stream_reader import StreamReader
    from .table_reader import TableReader
    from .writer import BatchWriter, StreamWriter


class SteleDataSource(DataSource):
    """``format("stele")`` for batch and streaming reads and writes.

    That is ``spark.read``, ``readStream``, ``write`` and ``writeStream``.
    """

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        # Spark does not say yet whether it reads a batch or a stream; the options are checked later.
        include = parse_boolean(str(self.options.get("includeHeaders", "false")).strip()) is True
        schemas = parse_decoding(self.options)
        if schemas is None:
            return spark_schema(include_headers=include)
        from .decoding import decoded_fields

        return spark_schema(include_headers=include, decoded=decoded_fields(schemas))

    def reader(self, schema: StructType) -> BatchReader | TableReader:
        from .batch_reader import BatchReader
        from .table_reader import TableReader

        options = parse_read_options(self.options, Use.BATCH_READ)
        if options.is_table:
            return TableReader(options, _columns(schema, options), _decoding(schema, options))
        return BatchReader(options, _columns(schema, options), _decoding(schema, options))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        from .stream_reader import StreamReader

        options = parse_read_options(self.options, Use.STREAM_READ)
        return StreamReader(options, _columns(schema, options), _decoding(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from .writer import BatchWriter

        if overwrite:
            raise OptionError('a log cannot be overwritten; write mode("append")')
        return BatchWriter(parse_write_options(self.options, Use.BATCH_WRITE), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        from .writer import StreamWriter

        # In output mode complete, every micro-batch is the whole result and is appended.
        return StreamWriter(parse_write_options(self.options, Use.STREAM_WRITE), schema)


def _columns(schema: StructType, options: ReadOptions) -> Columns:
    schemas = options.schemas
    decoded = () if schemas is None else [column.column for column in schemas.columns]
    read_columns(schema, include_headers=options.include_headers, decoded=decoded)
    return tuple((field.name, field.nullable) for field in schema.fields)


def _decoding(schema: StructType, options: ReadOptions) -> Decoding | None:
    """Return what decodes columns. Raises OptionError, SteleClientError."""
    if options.schemas is None:
        return None
    from .decoding import Decoding

    return Decoding.of(options.schemas, schema)
