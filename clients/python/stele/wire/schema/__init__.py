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
at most ``ELEMENTS_MAX`` elements in its arrays, and one that is read in steps
``REQUEST_ELEMENTS_MAX``. A string has at most ``STRING_BYTES_MAX`` bytes, in flexible
versions too, as in Kafka, so that every version can carry it.

Reading order:

- ``fields``    what a class declares
- ``rows``      arrays whose items stay encoded
- ``varints``   numbers of variable length, and tagged fields
- ``compiler``  one version of a class → one function
- ``codecs``    compiled functions, cached, for whole messages
"""

from __future__ import annotations

from .codecs import gathering_writer as gathering_writer
from .codecs import read_in_steps as read_in_steps
from .codecs import read_message as read_message
from .codecs import reader as reader
from .codecs import writer as writer
from .codecs import writer_in_steps as writer_in_steps
from .compiler import ELEMENTS_MAX as ELEMENTS_MAX
from .compiler import ELEMENTS_PER_READ as ELEMENTS_PER_READ
from .compiler import REQUEST_ELEMENTS_MAX as REQUEST_ELEMENTS_MAX
from .compiler import Reader as Reader
from .compiler import Writer as Writer
from .fields import NO_UUID as NO_UUID
from .fields import Bool as Bool
from .fields import Buffer as Buffer
from .fields import Field as Field
from .fields import Float64 as Float64
from .fields import Int8 as Int8
from .fields import Int16 as Int16
from .fields import Int32 as Int32
from .fields import Int64 as Int64
from .fields import Label as Label
from .fields import MalformedMessage as MalformedMessage
from .fields import Records as Records
from .fields import Rows as Rows
from .fields import Type as Type
from .fields import UInt16 as UInt16
from .fields import Uuid as Uuid
from .fields import Versions as Versions
from .fields import at as at
from .fields import fields_of as fields_of
from .fields import frozen_message as frozen_message
from .fields import least_bytes as least_bytes
from .fields import message as message
from .rows import EncodedRows as EncodedRows
from .rows import PartlyEncoded as PartlyEncoded
from .varints import read_varint as read_varint
from .varints import skip_tagged_fields as skip_tagged_fields
from .varints import varint as varint
