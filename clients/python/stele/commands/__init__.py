"""The commands of ``stele``, one file for each.

- ``common``, ``server``                 what commands share: a client and its options; the server's code
- ``inputs``, ``outputs``, ``progress``  files → records, records → text, a line of progress
- ``produce``, ``consume``               records in and out
- ``topics``, ``groups``, ``top``        administration and live figures
- ``serve``, ``inspect``                 the broker, and its files without it (``dump``, ``verify``)
- ``cdc``, ``pipeline``                  PostgreSQL's changes, Spark pipelines
"""
