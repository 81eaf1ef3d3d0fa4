"""From a produce request to the log. Reading order:

- ``produce``          the request and its result
- ``partitioner``      which partition a record without one goes to
- ``produce_queue``, ``recompress``   batches that a thread checks or compresses first
- ``timestamps``, ``record_keys``   checks of records: timestamps, and keys in a compacted topic
- ``contracts``        what the registry offers to check records against their schemas
- ``producer_state``, ``producers``   idempotent producers: each batch once, in order; and named ones
- ``transaction_gate``   the interface of appends to transactions
- ``appending``        checks and the append
- ``copy_pace``, ``copies``   how mirrors give way to other clients; what they write, and how a copy ends
"""
