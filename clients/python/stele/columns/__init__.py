"""Values with a schema as columns of Arrow, for Spark and for Iceberg tables. Needs the extra ``arrow``.

- ``plans``                                               what a schema becomes, and what is wanted of it
- ``avro_columns``, ``json_columns``, ``protobuf_columns``   the types, and the values, of each type of schema
"""
