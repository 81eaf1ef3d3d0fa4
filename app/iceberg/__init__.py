"""Iceberg tables of topics.

- ``catalog``   reads the tables that there are, and their metadata
"""
