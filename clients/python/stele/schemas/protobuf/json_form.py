"""Protobuf messages as JSON, both ways.

It is Protobuf's own JSON mapping (https://protobuf.dev/programming-guides/json/), so names are written
in lower camel case and read in either spelling. It differs where the way there and back would not be exact:

- 64-bit integers are JSON integers; strings of digits are read, too.
- An ``Any`` whose type neither the schema nor its imports declare is ``{"@type": …, "value": …}``
  with its bytes in base64.
- Nothing is read but what the mapping writes or names as an alternative: the string ``"true"`` is
  no boolean, and a field that does not exist is refused.

Fields that have their default and no presence are left out, and so are unknown fields. A ``float`` is
written with the fewest digits that mean it; NaN and the infinities are strings.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.empty_pb2 import Empty
from google.protobuf.internal import well_known_types
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message_factory import GetMessageClass

from ..definitions import InvalidValue
from . import scalars

# The methods of all messages, called as functions: a message may have a field of any of their names.
_Message: Any = next(base for base in Empty.__mro__ if "ListFields" in vars(base))

# Messages with a form of their own, if they are those of Google's files.
_FILES = {
    f"google/protobuf/{name}.proto"
    for name in ("any", "duration", "field_mask", "struct", "timestamp", "wrappers")
}
_TEXTS: dict[str, Any] = {
    "google.protobuf.Duration": well_known_types.Duration,
    "google.protobuf.FieldMask": well_known_types.FieldMask,
    "google.protobuf.Timestamp": well_known_types.Timestamp,
}
_KINDS: dict[type, str] = {
    bool: "bool_value",
    dict: "struct_value",
    float: "number_value",
    int: "number_value",
    list: "list_value",
    str: "string_value",
    type(None): "null_value",
}


class _Setter(NamedTuple):
    """How a field of a message is set from JSON."""

    place: int | str
    """What only one value may have: the number of the field, or the name of its oneof."""
    takes_null: bool
    set: Callable[[Any, Any], None]


class JsonForm:
    """The JSON form of the messages of one pool of descriptors."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._writers: dict[str, dict[int, tuple[str, scalars.Convert]]] = {}
        self._setters: dict[str, dict[str, _Setter]] = {}

    def message(self, descriptor: Descriptor, data: bytes | memoryview) -> Any:
        """Return bytes as a message.

        Raises:
            InvalidValue: They are no bytes of one, or a field that is required is missing.
        """
        message = GetMessageClass(descriptor)()
        try:
            _Message.MergeFromString(message, data)
        except DecodeError:
            raise InvalidValue("", f"these are no bytes of a {descriptor.full_name}") from None
        _check_required(message)
        return message

    def decode(self, descriptor: Descriptor, data: bytes | memoryview) -> Any:
        """Return bytes as JSON; for what is raised see ``ProtobufSchema.decode``."""
        try:
            return self._written(descriptor, self.message(descriptor, data))
        except RecursionError:
            raise InvalidValue("", "no JSON form: nested too deeply") from None

    def encode(self, descriptor: Descriptor, value: Any) -> bytes:
        """Return JSON as bytes; for what is raised see ``ProtobufSchema.encode``."""
        message = GetMessageClass(descriptor)()
        try:
            self._read(descriptor, message, value)
            data = _bytes(message)
            # What is nested deeper than a parser goes has bytes as well.
            _Message.MergeFromString(GetMessageClass(descriptor)(), data)
        except (DecodeError, EncodeError, RecursionError):
            raise InvalidValue("", "nested deeper than Protobuf allows") from None
        return data

    # ── messages to JSON ──

    def _written(self, descriptor: Descriptor, message: Any) -> Any:
        if descriptor.file.name in _FILES:
            return self._special_written(descriptor, message)
        writers = self._writers.setdefault(descriptor.full_name, {})
        result: dict[str, Any] = {}
        for field, value in _Message.ListFields(message):
            known = writers.get(field.number)
            if known is None:
                name = f"[{field.full_name}]" if field.is_extension else field.json_name
                known = writers[field.number] = (name, self._writer(field))
            name, write = known
            result[name] = write(value)
        return result

    def _special_written(self, descriptor: Descriptor, message: Any) -> Any:
        name = descriptor.full_name
        fields: Any = descriptor.fields_by_name
        if name in _TEXTS:
            try:
                return _TEXTS[name].ToJsonString(message)
            except ValueError as error:
                raise InvalidValue("", f"no JSON form: {error}") from None
        if name == "google.protobuf.Any":
            return self._any_written(message)
        if name == "google.protobuf.Struct":
            value_type = fields["fields"].message_type.fields_by_name["value"].message_type
            return {key: self._written(value_type, message.fields[key]) for key in sorted(message.fields)}
        if name == "google.protobuf.ListValue":
            value_type = fields["values"].message_type
            return [self._written(value_type, value) for value in message.values]
        if name == "google.protobuf.Value":
            for field, value in message.ListFields():
                if field.message_type is not None:
                    return self._special_written(field.message_type, value)
                if field.name == "number_value":
                    return _number_of_value(value)
                return None if field.name == "null_value" else value
            return None
        return scalars.writer(fields["value"])(message.value)  # a wrapper

    def _any_written(self, message: Any) -> dict[str, Any]:
        if not message.type_url and not message.value:
            return {}
        descriptor = self._type(message.type_url)
        if descriptor is None:
            return {"@type": message.type_url, "value": b64encode(message.value).decode()}
        value = self._written(descriptor, self.message(descriptor, message.value))
        return {"@type": message.type_url, **({"value": value} if descriptor.file.name in _FILES else value)}

    def _type(self, url: str) -> Descriptor | None:
        try:
            return self._pool.FindMessageTypeByName(url.rpartition("/")[2])
        except KeyError:
            return None

    def _writer(self, field: FieldDescriptor) -> scalars.Convert:
        if not field.is_repeated:
            return self._one_writer(field)
        if entry := _entry(field):
            write_key, write = scalars.key_writer(entry["key"]), self._one_writer(entry["value"])

            def write_map(values: Any) -> dict[str, Any]:
                names = {write_key(key): key for key in values}
                return {name: write(values[names[name]]) for name in sorted(names)}

            return write_map
        write_one = self._one_writer(field)
        return lambda values: [write_one(value) for value in values]

    def _one_writer(self, field: FieldDescriptor) -> scalars.Convert:
        message_type = field.message_type
        if message_type is None:
            return scalars.writer(field)
        return lambda message: self._written(message_type, message)

    # ── JSON to messages ──

    def _read(self, descriptor: Descriptor, message: Any, value: Any) -> None:
        if descriptor.file.name in _FILES:
            self._special_read(descriptor, message, value)
            return
        setters = self._setters.get(descriptor.full_name)
        if setters is None:
            setters = {field.name: self._setter(field) for field in descriptor.fields}
            setters |= {field.json_name: setters[field.name] for field in descriptor.fields}
            self._setters[descriptor.full_name] = setters
        given: set[int | str] = set()
        for name, part in _object(value, f"a {descriptor.full_name}").items():
            with _At(name):
                setter = setters.get(name) or self._extension(descriptor, name)
                if part is None and not setter.takes_null:
                    continue
                if setter.place in given:
                    raise InvalidValue("", "given a second time, or one too many of its oneof")
                given.add(setter.place)
                setter.set(message, part)

    def _extension(self, descriptor: Descriptor, name: Any) -> _Setter:
        try:
            field = self._pool.FindExtensionByName(re.fullmatch(r"\[(.+)\]", name)[1])  # pyright: ignore
        except (KeyError, TypeError):
            field = None
        if field is None or field.containing_type is not descriptor:
            raise InvalidValue("", f"{descriptor.full_name} has no such field")
        return self._setter(field)

    def _setter(self, field: FieldDescriptor) -> _Setter:
        kind, oneof = field.message_type or field.enum_type, field.containing_oneof
        takes_null = kind is not None and kind.full_name in ("google.protobuf.Value", scalars.NULL)
        return _Setter(field.number if oneof is None else oneof.name, takes_null, self._set(field))

    def _set(self, field: FieldDescriptor) -> Callable[[Any, Any], None]:
        """Return the function that sets a field of a message from JSON."""
        name = field.name
        if not field.is_repeated and field.message_type is None:
            read = scalars.reader(field)
            if field.is_extension:
                return lambda message, value: _extensions(message).__setitem__(field, read(value))
            return lambda message, value: setattr(message, name, read(value))
        fill = self._fill(field)
        if field.is_extension:
            return lambda message, value: fill(_extensions(message)[field], value)
        return lambda message, value: fill(getattr(message, name), value)

    def _fill(self, field: FieldDescriptor) -> Callable[[Any, Any], None]:
        """Return the function that fills a message, a list or a map, which is in its place already."""
        message_type = field.message_type

        def fill_message(target: Any, value: Any) -> None:
            _Message.SetInParent(target)
            self._read(cast("Descriptor", message_type), target, value)

        def fill_messages(target: Any, value: Any) -> None:
            for index, part in enumerate(_array(value)):
                with _At(index):
                    self._read(cast("Descriptor", message_type), target.add(), part)

        if message_type is None:
            read = scalars.reader(field)

            def fill_scalars(target: Any, value: Any) -> None:
                for index, part in enumerate(_array(value)):
                    with _At(index):
                        target.append(read(part))

            return fill_scalars
        if entry := _entry(field):
            return self._fill_map(entry)
        return fill_messages if field.is_repeated else fill_message

    def _fill_map(self, entry: dict[str, FieldDescriptor]) -> Callable[[Any, Any], None]:
        read_key, value_type = scalars.key_reader(entry["key"]), entry["value"].message_type
        read = scalars.reader(entry["value"]) if value_type is None else None

        def fill(target: Any, value: Any) -> None:
            for name, part in _object(value, "a map").items():
                with _At(name):
                    if read is not None:
                        target[read_key(name)] = read(part)
                    else:
                        self._read(cast("Descriptor", value_type), target[read_key(name)], part)

        return fill

    def _special_read(self, descriptor: Descriptor, message: Any, value: Any) -> None:
        name = descriptor.full_name
        if name in _TEXTS:
            try:
                _TEXTS[name].FromJsonString(message, value)
            except (AttributeError, TypeError, ValueError, OverflowError):
                raise InvalidValue("", f"no text of a {name}") from None
            return
        if name == "google.protobuf.Any":
            self._any_read(message, value)
            return
        # A wrapper has a field value.
        field = {"google.protobuf.Struct": "fields", "google.protobuf.ListValue": "values"}.get(name, "value")
        if name == "google.protobuf.Value":
            field = _KINDS.get(value.__class__, "")
            if not field or (field == "number_value" and scalars.number(value) != value):
                raise InvalidValue("", "no value that a google.protobuf.Value can have")
        self._set(descriptor.fields_by_name[field])(message, value)

    def _any_read(self, message: Any, value: Any) -> None:
        rest: Any = dict(_object(value, "a google.protobuf.Any"))
        if not rest:
            return
        url = rest.pop("@type", None)
        if not isinstance(url, str):
            raise InvalidValue("/@type", "missing, or no string")
        message.type_url = url
        descriptor = self._type(url)
        if descriptor is None or descriptor.file.name in _FILES:
            if set(rest) != {"value"}:
                raise InvalidValue("", f"the only other field beside the @type {url!r} is value")
            rest = rest["value"]
        if descriptor is None:
            with _At("value"):
                self._set(message.DESCRIPTOR.fields_by_name["value"])(message, rest)
            return
        inside = GetMessageClass(descriptor)()
        if descriptor.file.name in _FILES:
            with _At("value"):
                self._read(descriptor, inside, rest)
        else:
            self._read(descriptor, inside, rest)
        message.value = _bytes(inside)


def _object(value: Any, name: str) -> dict[Any, Any]:
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    raise InvalidValue("", f"{name} is an object")


def _array(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    raise InvalidValue("", "a repeated field is an array")


class _At:
    """Puts a place before the pointer of what is refused within it."""

    __slots__ = ("_name",)

    def __init__(self, name: object) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, InvalidValue):
            raise InvalidValue(_pointer(self._name) + error.pointer, error.reason) from None
        # Of text with lone surrogates, and of a number that a closed enum has not.
        if isinstance(error, ValueError):
            raise InvalidValue(_pointer(self._name), str(error)) from None


def _pointer(*names: object) -> str:
    return "".join("/" + str(name).replace("~", "~0").replace("/", "~1") for name in names)


def _check_required(message: Any) -> None:
    if not _Message.IsInitialized(message):
        missing = _Message.FindInitializationErrors(message)[0]
        raise InvalidValue(_pointer(*re.findall(r"[^.\[\]()]+", missing)), "a required field is missing")


def _bytes(message: Any) -> bytes:
    _check_required(message)
    return _Message.SerializeToString(message, deterministic=True)


def _entry(field: FieldDescriptor) -> dict[str, FieldDescriptor] | None:
    """Return key and value of a field that is a map."""
    entry = field.message_type
    return dict(entry.fields_by_name) if entry is not None and entry.GetOptions().map_entry else None


def _extensions(message: Any) -> Any:
    return _Message.Extensions.__get__(message)


def _number_of_value(value: float) -> float | int:
    """Return the number of a google.protobuf.Value, an integer if it is one."""
    if not math.isfinite(value):
        raise InvalidValue("", "a google.protobuf.Value has no NaN and no infinity in JSON")
    negative_zero = value == 0 and math.copysign(1, value) < 0
    return int(value) if value.is_integer() and abs(value) < 1 << 53 and not negative_zero else value
