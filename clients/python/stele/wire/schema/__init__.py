"""Messages declared as classes, and the compiler that turns them into codecs.

A message is a class whose annotations are its fields in wire order. ``at(…)`` gives the
versions of a field::

    @message
    class Topic:
        name: str | None = at(nullable="10+")
        topic_id: Uuid = at("10+", default=NO_UUID)

``reader`` and ``writer`` compile one version of a class into a single function. Adjacent
fields of fixed size become one ``struct`` call, nested classes become nested loops, and
no version is checked at run time. The compiled functions are cached.

Two protocols use it. This package has the encoding of Apache Kafka's protocol, below.
``stele.wire.messages.codec`` overrides it for the binary protocol, which has no versions,
lengths of 4 bytes, and errors that name the field.

Encoding, big-endian (https://kafka.apache.org/protocol, KIP-482 for *flexible* versions):

=============  ==========================  =======================================
type           classic                     flexible
=============  ==========================  =======================================
bool, intN     1, 2, 4 or 8 bytes          the same
uint16         2 bytes                     the same
float64        8 bytes, IEEE 754           the same
Uuid           16 bytes                    the same
str            length:2, UTF-8; -1 null    varint of length + 1; 0 null
bytes          length:4; -1 null           varint of length + 1; 0 null
Sequence[T]    count:4; -1 null            varint of count + 1; 0 null
tuple[T, U]    its items                   the same
class          its fields                  its fields, then tagged fields
class | None   1 byte (-1 null), fields    the same
=============  ==========================  =======================================

Tagged fields are ``count, then (tag, size, bytes)`` in varints; unknown ones are skipped.

A decoder checks every length and count against the remaining bytes before it allocates.
Objects take about fifty times the bytes that they are decoded from, so a message may have
at most ``ELEMENTS_MAX`` elements in its arrays. A string has at most ``STRING_BYTES_MAX``
bytes, in flexible versions too, as in Kafka, so that every version can carry it.

Reading order:

- ``fields``    what a class declares
- ``varints``   numbers of variable length, and tagged fields
- ``compiler``  one version of a class → one function
- ``codecs``    compiled functions, cached, for whole messages
"""

from __future__ import annotations

from .codecs import gathering_writer, read_message, reader, writer
from .compiler import ELEMENTS_MAX, STRING_BYTES_MAX, Reader, Writer
from .fields import (
    NO_UUID,
    Bool,
    Buffer,
    Field,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Label,
    MalformedMessage,
    Records,
    Type,
    UInt16,
    Uuid,
    Versions,
    at,
    fields_of,
    frozen_message,
    least_bytes,
    message,
)
from .varints import read_varint, skip_tagged_fields, varint

__all__ = [
    "ELEMENTS_MAX",
    "NO_UUID",
    "STRING_BYTES_MAX",
    "Bool",
    "Buffer",
    "Field",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Label",
    "MalformedMessage",
    "Reader",
    "Records",
    "Type",
    "UInt16",
    "Uuid",
    "Versions",
    "Writer",
    "at",
    "fields_of",
    "frozen_message",
    "gathering_writer",
    "least_bytes",
    "message",
    "read_message",
    "read_varint",
    "reader",
    "skip_tagged_fields",
    "varint",
    "writer",
]
