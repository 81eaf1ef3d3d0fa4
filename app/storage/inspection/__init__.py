"""``stele dump`` and ``stele verify``. Reading order:

- ``transaction_check``   markers and aborted transactions that do not fit each other
- ``inspect``          what the files of a directory hold, and what is wrong with them
"""
