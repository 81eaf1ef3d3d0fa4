"""Change data capture from PostgreSQL into topics (docs/cdc.md, ADR-0016).

Reading order, from PostgreSQL's bytes to the process that runs:

- ``options``, ``status``, ``errors``      options, figures and errors of a connector
- ``pgoutput``, ``values``, ``snapshot``   PostgreSQL's messages, values and COPY lines; no I/O
- ``column_types``, ``table_schemas``      types of columns, schemas of tables; no I/O
- ``avro_values``, ``forms``               values in Avro; rows and envelopes in each format; no I/O
- ``debezium_types``, ``debezium_form``    values, rows and envelopes as Debezium writes them; no I/O
- ``events``, ``notifications``, ``outbox``  a change, a notification or a message → a record; no I/O
- ``notation``, ``connection``             LSNs and names; connections, error translation
- ``postgres``, ``replication``            catalogs and setup; the slot, its stream and snapshot
- ``registered``                           schemas in a registry
- ``log_transaction``                       the transactions of the log
- ``log_writer``, ``state``                records → topics exactly once; the state of earlier runs
- ``schema_log``                           the columns of tables, whenever they change
- ``published``                            what the publication had and has of the tables
- ``context``, ``shapes``                  what the parts of a run share; tables in the form of ``events``
- ``feedback``                              positions confirmed to PostgreSQL
- ``windows``, ``beside``, ``copies``       where a part of a copy meets the stream; copies beside the stream, and before it
- ``spool``, ``transactions``              the stream's transactions, in commit order
- ``run``, ``connector``                   one attempt; retries until stopped
- ``asking``                                another process asks for a copy
"""
