"""Bytes of PostgreSQL → messages, rows and values; no I/O.

- ``notation``                             LSNs, and names as SQL writes them
- ``pgoutput``, ``values``, ``snapshot``   the stream's messages, values and COPY lines
- ``runs``                                 messages of one table, which are read together
- ``column_types``                         types of columns
"""
