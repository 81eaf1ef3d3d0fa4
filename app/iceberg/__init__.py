"""Topics as Apache Iceberg tables: the process that writes them, beside the broker.

- ``supervisor``  which topics are tables, and the process
- ``metrics``     what the process reports
- ``catalog``     the tables that there are and their metadata, read without pyiceberg
"""
