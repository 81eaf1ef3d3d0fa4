"""JSON Schema: drafts 4, 6, 7, 2019-09 and 2020-12, read into one form and validated by one set of rules.

Reading order:

- ``values``      what JSON values are
- ``reasons``     why a value is refused: in our words, without the value
- ``documents``   texts as JSON, within bounds, checked against the meta-schema of their draft
- ``nodes``       the schemas of all documents, with their references resolved, in the terms of draft 2020-12
- ``patterns``    regular expressions, matched in bounded time
- ``bounds``      what validating one value may take
- ``evaluation``  where and why a node refuses a value
- ``validators``  whether a node accepts a value, fast
- ``schema``      a schema that encodes and decodes values
"""

from .schema import JsonSchema, parse

__all__ = ["JsonSchema", "parse"]
