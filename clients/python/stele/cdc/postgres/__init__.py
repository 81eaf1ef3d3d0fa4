"""PostgreSQL as the source: connections, catalogs, the slot and its stream.

- ``connection``                connections, error translation
- ``catalog``, ``replication``  catalogs and setup; the slot, its stream and snapshot
- ``timelines``                 histories of servers, after failovers
- ``feedback``                  positions confirmed to PostgreSQL
- ``slot_guard``                a limit of the WAL that the slot holds back
"""
