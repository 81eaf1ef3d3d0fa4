"""The subcommands of ``stele``, one module per command.

- ``common``, ``server``                 a client and its options; the server's code
- ``terminal``                           what goes in and out: results, records, a progress line
- ``registries``                         the schema registry, and records as its schemas describe them
- ``produce``, ``consume``, ``table``      writing and printing records
- ``sql``                                a SQL statement over topics
- ``topics``, ``groups``, ``transactions``, ``quotas``, ``top``   administration and live metrics
- ``schemas``                            schemas and subjects of the registry
- ``serve``, ``inspect``                 running a broker; reading its files offline (``dump``, ``verify``)
- ``replica``                            restores from a replica in a bucket (``restore``), and looks at it
- ``users``, ``acls``                    users and API keys (``user``, ``key``), access rules; over HTTP or offline
- ``mirror``                             copies of topics of other clusters
- ``iceberg``                            topics as Iceberg tables
- ``cdc``, ``pipeline``                  changes of PostgreSQL, Spark pipelines
"""
