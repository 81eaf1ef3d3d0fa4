"""A Spark data source and sink without jars (ADR-0015).

``spark.read.format("stele")``, see docs/spark.md.

PySpark finds it through the top-level package ``pyspark_stele``, installed with this one.
Reading order:

- ``options``, ``given``, ``schema_options``, ``parsing``
                                         parsing of options; no Spark, no I/O
- ``offsets``                            offset arithmetic; no Spark, no I/O
- ``schema``, ``rows``                   columns of a record; rows of a sink (``stele.wire.arrow`` decodes)
- ``fetching``, ``planning``             calls to the broker; bounds of a read
- ``registry``, ``decoding``             the schemas of plans and values; rows with decoded columns (``stele.columns``)
- ``batch_reader``, ``stream_reader``    ranges of offsets per query, per micro-batch
- ``table_reader``                       tables of compacted topics
- ``avro_rows``, ``json_rows``, ``protobuf_rows``, ``encoding``   columns as values with a schema
- ``transactions``                       what a write commits as one
- ``sending``, ``writer``                rows → topics, exactly once
- ``source``                             the entry point of Spark
- ``java``, ``pipeline``                 checks of the installation; code shared by the pipelines
"""
