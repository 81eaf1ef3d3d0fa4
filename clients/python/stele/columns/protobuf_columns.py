"""Arrow types of Protobuf messages, and their values for columns of these types.

As spark-protobuf has them, but that

- a field that has presence and is not set is null; one without presence has its default,
- ``uint32`` is an int64 and ``uint64`` a decimal of 20 digits, which have all of their values,
- wrappers are the type that they wrap, and a ``Timestamp`` is a timestamp,
- a part that no type describes is a string with its JSON: a message within itself, one without
  fields, and the messages of Google's files that have a JSON form of their own, such as ``Struct``.

A payload is read as the message of the query's plan, by Protobuf's own rules: fields that this does not
know are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from ..registry.codecs import Decode
from ..registry.frames import Framed
from ..schemas.definitions import InvalidSchema, InvalidValue, ParsedSchema
from ..schemas.framing import FIRST_MESSAGE, NotFramed, split_indexes
from ..schemas.protobuf.json_form import JsonForm
from ..schemas.protobuf.schema import ProtobufSchema
from ..wire.arrow_types import DataType, pa
from .plans import STRING, TIMESTAMP, Plan, Wanted, chosen_fields, item_of, list_of, map_of, struct_of

Convert = Callable[[Any], Any]

_SCALARS: dict[int, DataType] = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: STRING,
}


def plan(schema: ProtobufSchema, wanted: Wanted, message: str | None) -> Plan:
    """Return how messages are read as the schema describes them; see ``plans.Plan``.

    Raises:
        InvalidValue: the schema declares no such message.
    """
    descriptor = schema.message(FIRST_MESSAGE if message is None else schema.indexes(message))
    form = JsonForm(descriptor.file.pool)
    data_type, convert = _Planner(form).message(descriptor, wanted, ())

    def decode_of(writer: ParsedSchema) -> Decode:
        if writer.type != "PROTOBUF":
            raise InvalidSchema(f"it is of type {writer.type}, and the plan of the query has Protobuf")
        written = cast("ProtobufSchema", writer)

        def decode(framed: Framed) -> Any:
            indexes, payload = _indexes(framed)
            found = written.message(indexes).full_name
            if found != descriptor.full_name:
                raise InvalidValue("", f"it is a {found}, and not a {descriptor.full_name}")
            return convert(form.message(descriptor, payload))

        return decode

    return Plan(data_type, decode_of)


def _indexes(framed: Framed) -> tuple[tuple[int, ...], bytes]:
    try:
        if framed.in_header is None:
            return split_indexes(framed.payload)
        return split_indexes(framed.in_header)[0], framed.payload
    except NotFramed as error:
        raise InvalidValue("", str(error)) from None


class _Planner:
    """Plans the messages of a schema; ``form`` makes the JSON of those that are no struct."""

    def __init__(self, form: JsonForm) -> None:
        self._form = form

    def message(
        self, descriptor: Descriptor, wanted: Wanted, above: tuple[str, ...]
    ) -> tuple[DataType, Convert]:
        """Return the Arrow type of a message, and what makes a value of it."""
        name = descriptor.full_name
        fields: dict[str, FieldDescriptor] = {field.name: field for field in descriptor.fields}
        if name == "google.protobuf.Timestamp":
            return TIMESTAMP, lambda message: message.seconds * 10**6 + message.nanos // 1000
        if descriptor.file.name == "google/protobuf/wrappers.proto":
            return _scalar(fields["value"])[0], _attribute("value", _scalar(fields["value"])[1])
        if name in above or not fields or descriptor.file.name.startswith("google/protobuf/"):
            return STRING, self._as_text(descriptor)
        above = (*above, name)
        planned = {
            field: self._field(fields[field], inner, above) for field, inner in chosen_fields(fields, wanted)
        }
        getters = [(field, getter) for field, (_, getter) in planned.items()]
        struct = struct_of((field, data_type) for field, (data_type, _) in planned.items())
        return struct, lambda message: {field: getter(message) for field, getter in getters}

    def _as_text(self, descriptor: Descriptor) -> Convert:
        form = self._form

        def as_text(message: Any) -> str:
            return msgspec.json.encode(form.decode(descriptor, message.SerializeToString())).decode()

        return as_text

    def _field(
        self, field: FieldDescriptor, wanted: Wanted, above: tuple[str, ...]
    ) -> tuple[DataType, Convert]:
        """Return the Arrow type of a field, and what makes its value of its message."""
        name = field.name
        if field.is_repeated:
            return self._repeated(field, wanted, above)
        data_type, convert = self._one(field, wanted, above)
        get = _attribute(name, convert)
        if not field.has_presence:
            return data_type, get
        return data_type, lambda message: get(message) if message.HasField(name) else None

    def _repeated(
        self, field: FieldDescriptor, wanted: Wanted, above: tuple[str, ...]
    ) -> tuple[DataType, Convert]:
        name, entry = field.name, field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key_type, key = _scalar(entry.fields_by_name["key"])
            data_type, value = self._one(entry.fields_by_name["value"], item_of(wanted), above)
            return map_of(key_type, data_type), lambda message: [
                (key(name_of), value(inner)) for name_of, inner in getattr(message, name).items()
            ]
        data_type, convert = self._one(field, item_of(wanted), above)
        return list_of(data_type), lambda message: [convert(item) for item in getattr(message, name)]

    def _one(
        self, field: FieldDescriptor, wanted: Wanted, above: tuple[str, ...]
    ) -> tuple[DataType, Convert]:
        """Return the Arrow type of a value of a field, and what makes it."""
        return (
            _scalar(field) if field.message_type is None else self.message(field.message_type, wanted, above)
        )


def _scalar(field: FieldDescriptor) -> tuple[DataType, Convert]:
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        # An open enum may have a number that the schema does not name.
        return STRING, lambda number: names.get(number) or str(number)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return (pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else STRING), _same
    return _SCALARS[field.cpp_type], _same


def _same(value: Any) -> Any:
    return value


def _attribute(name: str, convert: Convert) -> Convert:
    return lambda message: convert(getattr(message, name))
