"""The subcommands of ``stele``, one module per command.

- ``common``, ``server``                 a client and its options; the server's code
- ``inputs``, ``outputs``, ``progress``  files → records, records → text, a progress line
- ``produce``, ``consume``               writing and printing records
- ``topics``, ``groups``, ``top``        administration and live metrics
- ``serve``, ``inspect``                 running a broker; reading its files offline (``dump``, ``verify``)
- ``cdc``, ``pipeline``                  changes of PostgreSQL, Spark pipelines
"""
