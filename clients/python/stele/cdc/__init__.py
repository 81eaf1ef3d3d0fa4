"""Change data capture from PostgreSQL into topics (docs/cdc.md, ADR-0016).

Reading order, from PostgreSQL's bytes to the process that runs:

- ``options``, ``status``, ``errors``      options, figures and errors of a connector
- ``pgoutput``, ``values``, ``snapshot``   PostgreSQL's messages, values and COPY lines; no I/O
- ``events``, ``notifications``            a change or a notification → key and value of a record; no I/O
- ``notation``, ``connection``             LSNs and names; connections and their errors
- ``postgres``, ``replication``            catalogs and set-up; the slot, its stream and its snapshot
- ``log_writer``, ``state``                records → topics exactly once; notes of earlier runs
- ``context``, ``shapes``                  what the parts of a run share; tables as ``events`` takes them
- ``feedback``, ``copies``                 positions confirmed to PostgreSQL; tables, each copied once
- ``spool``, ``transactions``              the stream's transactions, in the order of their commits
- ``run``, ``connector``                   one attempt; attempts until stopped
"""
