"""A Spark data source and sink without jars: ``spark.read.format("stele")`` (docs/spark.md, ADR-0015).

PySpark finds it through the top-level package ``pyspark_stele``, which is installed
with this one. Reading order:

- ``options``, ``parsing``, ``offsets``  options and offsets, parsed and computed; no Spark, no I/O
- ``schema``, ``rows``                   columns of a record; rows of a sink (``stele.wire.arrow`` decodes)
- ``fetching``, ``planning``             the broker; where a read begins and ends
- ``batch_reader``, ``stream_reader``    ranges of offsets per query, per micro-batch
- ``sending``, ``writer``                rows → topics, each once
- ``source``                             what Spark calls
- ``java``, ``pipeline``                 is Spark there; what the pipelines share
"""
