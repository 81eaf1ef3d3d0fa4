"""Numbers of connections to PostgreSQL per broker.

PostgreSQL has a process per connection, so there are few, and each has its work: commits of records, offsets of
groups and heartbeats must not wait for each other.
"""

from __future__ import annotations

# Metadata of records, transactions and surveys.
RECORDS = 8
# Commits of the groups of different shards wait for each other if they share a connection.
GROUPS = 4
# Topics, users and access rules share one, and the heartbeats of the broker have their own.
CATALOG_AND_HEARTBEATS = 2
CONNECTIONS_MAX = RECORDS + GROUPS + CATALOG_AND_HEARTBEATS
