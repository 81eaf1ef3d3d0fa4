"""Iceberg tables of topics, over pyiceberg; extra ``iceberg``.

- ``upkeep``   small files, old snapshots, and files that no snapshot names
"""
