"""Transactions: writes to several partitions become visible together, or none.

It knows no protocol; the Kafka and the HTTP listener serve it. Reading order:

- ``messages``            results of calls
- ``states``              the states, and the effect of an end in each: a table
- ``plans``               plans of a machine for others to carry out
- ``transaction``         one transactional id, a pure machine
- ``descriptions``        transactions as operators list and describe them
- ``table``               which transactional ids exist
- ``endings``             the end of a transaction, in the order in which it becomes durable
- ``joint_commits``       several transactions that are committed as one
- ``recovery``            recovery before clients are served
- ``timeouts``            transactions that take too long, ids that no producer uses
- ``request_checks``      checks of ids and requests before anything is stored
- ``interface``           the interface for listeners, on one broker or with shared storage
- ``coordinator``         the transactions of one broker; the gate that the broker asks
- ``shared_requests``     requests to a machine, and their changes in the database
- ``shared_coordinator``, ``shared_joint_commits``   the transactions of a cluster, which have no coordinator (ADR-0055)
- ``writes``              records, leases and offsets into a transaction, for listeners without batches of their own
- ``kept_answers``        which requests with an idempotency key were committed
- ``answer_store``        their answers, in the store of one broker or in that of a cluster
- ``atomic_requests``     a whole transaction in one request
- ``services``            all that a listener may call, in one place
- ``partition_transactions``  open transactions of a partition, which hold its last stable offset back
"""
