"""Values with a schema as columns of Arrow, for Spark, Iceberg tables and SQL. Needs the extra ``arrow``.

- ``plans``                                               what a schema becomes, and what is wanted of it
- ``avro_columns``, ``json_columns``, ``protobuf_columns``   the types, and the values, of each type of schema
- ``planning``                                            the plan of a schema of any of them
- ``shapes``                                              what two types have in common, and arrays of one as the other
- ``values``                                              values of many schemas as arrays, and why some are none
"""
