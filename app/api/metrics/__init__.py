"""Metrics for Prometheus. Reading order:

- ``listeners``, ``cluster``, ``transactions``, ``replica``   of the listeners, the cluster, transactions and the replica
- ``collectors``       all of them
"""
