"""A Spark data source and sink without jars: ``spark.read.format("stele")`` (docs/spark.md, ADR-0015).

PySpark finds it through the top-level package ``pyspark_stele``, which is installed
with this one. In reading order: ``options`` and ``offsets`` (no Spark, no I/O),
``schema`` and ``decode`` (records → Arrow), ``fetching`` and ``planning`` (the broker),
then the readers, the writer, and ``source``, which Spark calls.
"""
