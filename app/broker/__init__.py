"""Topics, partitions, produce, fetch and producers; listeners call ``broker.Broker``.

Reading order:

- ``broker``                        the interface for listeners
- ``topics``, ``placement``         topics, durable in the catalog; Kafka's placement rules
- ``cluster``, ``lease_keeper``     the other brokers and their changes; the leases of this one
- ``surveys``                       surveys of all brokers and their storage
- ``forwarding``                    requests for groups that another broker coordinates
- ``topic_changes``                 creates, alters and deletes topics, and calls the observers of a change
- ``producers``, ``appending``, ``partitioner``   idempotent and named producers; checks and the append
- ``storage_views``                 files and compaction, for operators
- ``reading``, ``counts``, ``catalog_thread``   fetch, waits and offsets; totals; calls of the catalog
- ``produce``, ``fetch``            requests and results of a produce and of a fetch
- ``decoded_bytes``                how much may be unpacked at the same time
- ``visible_batches``               hides markers and aborted transactions
- ``record_counts``                 how many records of a batch follow an offset, across holes
- ``producer_state``                idempotent producers: each batch once, in order
- ``produce_queue``, ``recompress``   batches that a thread checks or compresses first
- ``timestamps``, ``record_keys``   checks of records: timestamps, and keys in a compacted topic
- ``keyed_reading``                 compacted topics by key
- ``transaction_gate``              the interface of appends to transactions
- ``tail_subscriptions``            which partitions of a followed topic have new records
- ``virtual``                       internal topics whose records are made when they are read
- ``config_values``, ``broker_configs``, ``dynamic_configs``, ``entity_configs``   configurations by Kafka's names
- ``quotas``                        how much a client may use, for all listeners
- ``listeners``                     a listener's report about itself
"""
