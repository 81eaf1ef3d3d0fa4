"""Metrics for Prometheus. Reading order:

- ``listener_metrics``, ``cluster_metrics``, ``transaction_metrics``   of the listeners, the cluster and transactions
- ``metrics``          all of them
"""
