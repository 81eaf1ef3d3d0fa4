"""Transactions: writes to several partitions become visible as a whole.

Otherwise none of them does.

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
- ``timeouts``            transactions that take too long, ids that nobody uses
- ``coordinator``         what a listener may call; the gate that the broker asks
- ``writes``              records, leases and offsets into a transaction, for listeners without batches of their own
- ``kept_answers``        which requests with an idempotency key were committed
- ``atomic_requests``     a whole transaction in one request
- ``services``            all that a listener may call, in one place
- ``partition_transactions``  what is open in the log of a partition, and holds its last stable offset back
"""
