"""Records that a change becomes, in each format; no I/O.

- ``table_schemas``                           schemas of tables
- ``avro_values``, ``forms``                  values in Avro; rows and envelopes in each format
- ``debezium_types``, ``debezium_form``       values, rows and envelopes as Debezium writes them
- ``connect_avro``                            the same in Avro
- ``events``, ``notifications``, ``outbox``   a change, a notification or a message → a record
"""
