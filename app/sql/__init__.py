"""SQL over topics: processes that run statements, and what the broker serves them (ADR-0081).

- ``processes``   processes, which are started, watched and killed, and kept for the next statement
- ``snapshots``   the newest snapshots of topics that are Iceberg tables
- ``statements``  one statement: its rights, the offsets that it sees, the records that it reads, its limits
"""
