"""How values with a schema are read into columns: what the modules for each type of schema share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from ..registry.codecs import Decode
from ..schemas.definitions import ParsedSchema
from .options import OptionError

STRING = StringType()


class Plan(NamedTuple):
    """The Spark type of a column, and how payloads of each writer's schema become values for Arrow.

    It is made from the schema of the query's plan, and from the type that the user wants, which may leave out
    fields: these are not converted. Making it raises OptionError for a field that the schema does not have.
    """

    data_type: DataType
    decode_of: Callable[[ParsedSchema], Decode]


def chosen_fields(fields: Iterable[str], wanted: DataType | None) -> list[tuple[str, DataType | None]]:
    """Return the fields to read, with the type that is wanted of each; all of them if nothing is.

    Raises:
        OptionError: a wanted field does not exist.
    """
    names = list(fields)
    if not isinstance(wanted, StructType):
        return [(name, None) for name in names]
    for name in wanted.names:
        if name not in names:
            raise OptionError(
                f"the schema of the read has a field {name!r}, and the registered one has {', '.join(names)}"
            )
    return [(field.name, field.dataType) for field in wanted.fields]


def element_of(wanted: DataType | None) -> DataType | None:
    return wanted.elementType if isinstance(wanted, ArrayType) else None


def value_of(wanted: DataType | None) -> DataType | None:
    return wanted.valueType if isinstance(wanted, MapType) else None
