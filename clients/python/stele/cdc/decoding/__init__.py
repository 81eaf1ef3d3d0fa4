"""Bytes of PostgreSQL → messages, rows and values; no I/O.

- ``notation``                             LSNs, and names as SQL writes them
- ``pgoutput``, ``values``, ``snapshot``   the stream's messages, values and COPY lines
- ``column_types``                         types of columns
"""
