"""Change data capture from PostgreSQL into topics (docs/cdc.md, ADR-0016).

Reading order, from PostgreSQL's bytes to the process that runs:

- ``options``, ``status``, ``errors``   options, figures and errors of a connector
- ``decoding``                          PostgreSQL's bytes → messages, rows and values
- ``records``                           a change → a record, in each format
- ``postgres``                          connections, catalogs, the slot and its stream
- ``registered``                        schemas in a registry
- ``log_transaction``                   the transactions of the log
- ``log_writer``, ``state``             records → topics exactly once; the state of earlier runs
- ``schema_log``                        the columns of tables, whenever they change
- ``requests``                          tables that are requested while a connector runs
- ``context``, ``shapes``               what the parts of a run share; tables in the form of ``events``
- ``copying``                           copies of tables, before the stream and beside it
- ``spool``, ``transactions``           the stream's transactions, in commit order
- ``gaps``                              changes that may be missing, after failovers
- ``run``, ``connector``                one attempt; retries until stopped
"""
