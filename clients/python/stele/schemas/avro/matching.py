"""Which parts of a reader's schema belong to which parts of a writer's: the rules of Avro's schema resolution.

Names are compared without their namespaces, as the specification asks for; an alias of the
reader's is a full name. Aliases of the writer's schema say nothing.
"""

from __future__ import annotations

from .types import NAMED, Field, Type

# By the kind of the writer's type.
PROMOTIONS: dict[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def names_match(writer: Type, reader: Type) -> bool:
    return writer.short_name == reader.short_name or writer.name in reader.aliases


def decimals_match(writer: Type, reader: Type) -> bool:
    """Return whether decimals have the same scale, and the reader's at least the precision of the writer's.

    The specification asks for the same precision, too; but one that grows harms nothing. A type that is
    a decimal only for one side matches.
    """
    if writer.logical != "decimal" or reader.logical != "decimal":
        return True
    (writer_precision, writer_scale), (precision, scale) = writer.decimal, reader.decimal
    return writer_scale == scale and writer_precision <= precision


def written_fields(writer: dict[str, Field], field: Field) -> list[Field]:
    """Return the fields of the writer's record, by name, that a field of the reader's can be read from."""
    names = dict.fromkeys((field.name, *field.aliases))
    return [writer[name] for name in names if name in writer]


def matching_branch(writer: Type, union: Type) -> Type | None:
    """Return the branch of the reader's union that reads a type that is no union; None if there is none.

    As in Java: one of the same kind and full name first, then one whose name matches, then the first to
    which it can be promoted.
    """
    same_kind = [branch for branch in union.branches if branch.kind == writer.kind]
    for branch in same_kind:
        if branch.name == writer.name:
            return branch
    for branch in same_kind:
        if writer.kind in NAMED and names_match(writer, branch):
            return branch
    promotions = PROMOTIONS.get(writer.kind, ())
    return next((branch for branch in union.branches if branch.kind in promotions), None)
