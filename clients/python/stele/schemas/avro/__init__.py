"""Schemas of Apache Avro (https://avro.apache.org/docs/1.12.0/specification/), and values in their binary encoding.

Values have the JSON form of ``stele.schemas.json_values``. Records, and maps, are objects; enums are strings.
A union is written plainly if the kinds of JSON values that its branches can have (``json_kinds``) all differ:
of ``["null", "string"]``, ``null`` and ``"a"``. Otherwise every value but null is an object
with the name of its branch: of ``["null", "int", "long"]``, ``{"long": 1}``. The latter form, which is that
of Avro's own JSON encoding, is also accepted for plain unions where it can be nothing else.

A field that is missing in JSON has its default. A map that has a key twice has its last value. ``big-decimal`` is, like
any logical type that is not in ``stele.schemas.json_values``, what is stored: bytes.

Not fastavro, with which the tests compare: it returns the same value for different branches of a union, so that
nothing exact can be made of it, rounds decimals, overflows in timestamps, and takes a negative index for one from
the end. Bytes that nest a million records end its process, and five bytes make an array of 2^40 nulls.

Reading order:

- ``types``     a schema as a graph
- ``parsing``   text to graph
- ``printing``  graph to text
- ``logical``   logical types
- ``writing``   values to bytes
- ``matching``  which parts of two schemas belong to each other
- ``reading``   bytes to values, also those of another schema
- ``checking``  whether bytes are a value, faster
- ``python_values``  values as Python has them in place of JSON
- ``schema``    all of it as one object
"""

from __future__ import annotations

from .schema import AvroSchema as AvroSchema
from .schema import parse as parse
