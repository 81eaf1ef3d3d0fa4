"""Pure functions over bytes, shared by the broker and the client library.

Nothing here opens, awaits, sleeps or reads a clock. Reading order:

- ``error_codes``   error numbers of all listeners (those of Apache Kafka)
- ``record_batch``  RecordBatch v2: build, check, walk, decode
- ``header_names``  header names that are not UTF-8
- ``lone_record``   batches of one large record, without the codec
- ``compression``   the four codecs of a batch, bounded
- ``framing``       the length-prefixed frames of the binary protocol
- ``schema``        declared messages and their compiler, for this protocol and Kafka's
- ``messages``      the messages of the binary protocol (ADR-0009, ADR-0010)
- ``kafka``         the messages of Kafka's protocol and their headers
- ``control_record``  the markers that end transactions
- ``isolation_level`` whether a reader sees open and aborted transactions
- ``partitioner``   key → partition
- ``notation``      numbers, booleans, durations and times as users write them
- ``cdc_requests``  what a connector is asked to do with tables
- ``bucket_url``    the URL of a bucket as the configuration of Iceberg
- ``sql_frames``    between the broker and a process that runs SQL statements
- ``arrow_types``, ``arrow``   batches → Arrow, with the extra ``arrow`` or ``spark``
- ``many_records``           records of many batches at once, for these
"""
