"""Protobuf schemas: parsed by protoc, printed as text, and their values as bytes and as JSON.

They need the packages of the extra ``protobuf``, which nothing here imports before a schema is parsed.

Reading order:

- ``compiler``    texts to descriptors: protoc in a process of its own
- ``scalars``     values that are no messages as JSON, both ways
- ``json_form``   messages as JSON, both ways
- ``printer``     a descriptor as text
- ``schema``      a parsed schema: its text, its messages and their indexes, its values
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..definitions import InvalidSchema

if TYPE_CHECKING:
    from .schema import ProtobufSchema

# Of the text and of all references together, in characters.
MAX_TEXT, MAX_TEXTS = 1 << 20, 4 << 20


def parse(text: str, references: Mapping[str, str] | None = None) -> ProtobufSchema:
    """Return a schema from ``.proto`` text, or from a serialized FileDescriptorProto in base64.

    ``references`` are the texts of its imports and of theirs by the name of the import, each after
    those that it imports. ``google/protobuf/*.proto``, ``google/type/*.proto`` and Confluent's files
    need none. It starts a process, so it blocks for some ten milliseconds: call it in a thread.

    Raises:
        InvalidSchema: It is none, or the extra ``protobuf`` is not installed.
    """
    references = references or {}
    if not text.strip():
        raise InvalidSchema("it is empty")
    if len(text) > MAX_TEXT or len(text) + sum(map(len, references.values())) > MAX_TEXTS:
        raise InvalidSchema(f"it has more than {MAX_TEXT:,} characters, or with its references {MAX_TEXTS:,}")
    # A package inside another is only looked for once the other is there. Without its compiled part,
    # protobuf does not survive every schema.
    outer, inner = ("google", "grpc_tools"), ("google.protobuf", "google._upb", "google.type")
    if not all(map(find_spec, outer)) or not all(map(find_spec, inner)):
        raise InvalidSchema(
            "schemas of type PROTOBUF need further packages, compiled for this platform:"
            " run pip install 'stele-broker[protobuf]'"
        )
    from .schema import parsed

    return parsed(text, references)
