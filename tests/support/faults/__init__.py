"""A cluster of real brokers, PostgreSQL and an S3 server, whose parts are killed, paused and cut off.

- ``links``        TCP proxies between each pair of parts, which stall or break
- ``store_proxy``  an HTTP proxy before the S3 server, which fails requests in several ways
- ``hooks``        what a broker under test does faster than those of users
- ``ledger``       what clients were told, and the checks of it
- ``clients``      producers and consumers of every protocol
- ``world``        all parts together, and the checks of the metadata and the store
- ``story``        the faults, from a seed
"""
