"""Schemas of keys and values, and the bytes of values that have one: pure functions, shared with the broker.

Reading order:

- ``definitions``   what a schema of any type can do, and how schemas and values are refused
- ``subjects``      names of the subjects of a topic
- ``framing``       how a value names its schema
- ``json_values``   the JSON form of values for which JSON has no type
- ``avro``          schemas of Apache Avro
- ``json_schema``   schemas of type JSON
- ``protobuf``      schemas of type PROTOBUF
"""
