"""``stele dump`` and ``stele verify``. Reading order:

- ``transaction_check``   markers and aborted transactions that do not fit each other
- ``dump_and_verify``   the contents of the files of a directory, and their errors
"""
