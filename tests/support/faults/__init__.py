"""A cluster of real brokers, PostgreSQL and an S3 server, whose parts are killed, paused and cut off.

- ``links``        TCP proxies between each pair of parts, which stall or break
- ``store_proxy``  an HTTP proxy before the S3 server, which fails requests in several ways
- ``database``     PostgreSQL, which may have a standby and fail over to it
- ``hooks``        what a broker under test does faster than those of users
- ``ledger``       what clients were told, and the checks of it
- ``clients``      producers and consumers of every protocol
- ``epoch_reader`` a reader of the Kafka protocol that compares leader epochs
- ``pairs``        transactions
- ``reports``      what brokers say that they have lost
- ``world``        all parts together, and the checks of the metadata and the store
- ``story``        the faults, from a seed
- ``record``       what became of each cluster

One broker that loses its directory and is restored from its replica:

- ``buckets``      S3 servers that fail and are killed, and directories
- ``changes``      PostgreSQL and the connector that follows it
- ``mixed_load``   the clients, and what of their records must be there
- ``replica``      the losses, from a seed, and the restores

``python -m tests.support.faults`` runs them for a given time.
"""
