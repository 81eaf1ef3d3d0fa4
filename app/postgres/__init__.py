"""Connections to PostgreSQL, and the schema of the shared stores.

Reading order:

- ``connection_counts``  numbers of connections per purpose
- ``migrations``  the numbered SQL files, and how a database gets from one version to the next
- ``history``     whether the database still is the one that the broker knows
- ``connector``   a connection with the settings that every session needs
- ``pool``        connections of threads
- ``session``     one connection for callers that block
- ``traffic``     round-trip times and errors

The layers above have the SQL. This package needs the extra ``cluster``; only a broker with
shared storage imports it.
"""
