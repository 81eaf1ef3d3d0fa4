"""Topics, partitions, produce, fetch and producers; listeners call ``broker.Broker``.

Reading order:

- ``broker``                        the interface for listeners
- ``topics``, ``placement``         topics, durable in the catalog; Kafka's placement rules
- ``cluster``, ``lease_keeper``     the other brokers and their changes; the leases of this one
- ``surveys``                       surveys of all brokers and their storage
- ``forwarding``                    requests for groups that another broker coordinates
- ``topic_changes``                 creates, alters and deletes topics, and calls the observers of a change
- ``producing``, ``reading``        from a produce request to the log; from a fetch request to records
- ``counts``, ``catalog_thread``    totals; calls of the catalog
- ``storage_views``                 files and compaction, for operators
- ``mirrors``                       what is copied from other clusters
- ``virtual``                       internal topics whose records are made when they are read
- ``config_values``, ``broker_configs``, ``dynamic_configs``, ``entity_configs``   configurations by Kafka's names
- ``quotas``                        how much a client may use, for all listeners
- ``listeners``                     a listener's report about itself
"""
