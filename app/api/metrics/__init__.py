"""Metrics for Prometheus. Reading order:

- ``listeners``, ``cluster``, ``transactions``   of the listeners, the cluster and transactions
- ``collectors``       all of them
"""
