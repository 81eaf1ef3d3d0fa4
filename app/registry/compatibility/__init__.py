"""Whether data of one schema can be read with another, by type of schema.

Each of ``avro``, ``json_schema`` (with ``json_schema_values`` and ``proofs``) and ``protobuf`` has a function
``incompatibilities``.
"""
