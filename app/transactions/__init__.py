"""Transactions: writes to several partitions become visible together, or none.

It knows no protocol; the Kafka and the HTTP listener serve it. Reading order:

- ``transactional_id``    which ids are valid
- ``messages``            results of calls
- ``states``              the states, and what the end of a transaction means in each: a table
- ``plans``               what a machine decides and others carry out
- ``transaction``         one transactional id, a pure machine
- ``transaction_table``   which transactional ids exist
- ``endings``             the end of a transaction, in the order in which it becomes durable
- ``joint_commits``       several transactions that are committed as one
- ``recovery``            what is done before any client is served
- ``timeouts``            transactions that take too long, ids that no producer uses
- ``request_checks``      what is checked before anything is stored
- ``service``             what a listener may call, on one broker or with shared storage
- ``coordinator``         the transactions of one broker; the gate that the broker asks
- ``shared_requests``     what a request asks of a machine, and what that changes in the database
- ``shared_coordinator``, ``shared_joint_commits``   the transactions of a cluster, which have no coordinator (ADR-0055)
- ``writes``              records, leases and offsets into a transaction, for listeners without batches of their own
- ``kept_answers``        which requests with an idempotency key were committed
- ``answers``             their answers, in the store of one broker or in that of a cluster
- ``atomic_requests``     a whole transaction in one request
- ``services``            all that a listener may call, in one place
- ``partition_transactions``  what is open in the log of a partition, and holds its last stable offset back
"""
