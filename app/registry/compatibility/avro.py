"""Whether values written with one Avro schema can be read with another.

The rules are those of the specification's schema resolution, by which ``stele.schemas.avro`` decodes, too. Here
every value that the writer's schema allows must be readable: each branch of its unions, each symbol of its enums.

Avro for Java (``SchemaCompatibility``), which other registries use, decides the same but for decimals: it takes any
two, and reads 12.30 as 1.230 if the scale has changed. The specification asks for the same scale and precision;
here the precision may also grow.

Not the check of the package ``avro``, with which the tests compare: it takes a relative alias of a type for one without
a namespace, and any two decimals; it cannot parse a type that is repeated where it is used again.
"""

from __future__ import annotations

from stele.schemas.avro import AvroSchema, matching
from stele.schemas.avro.types import NO_DEFAULT, Field, Type

# What is found beyond these is of no use to a reader.
REASONS_MAX = 100
# Of types. Unions of a thousand records have a million; this many take less than a second.
PAIRS_MAX = 100_000
# Of types within each other, five calls each. Chains through names may be as long as a schema has names.
_DEPTH_MAX = 100


def incompatibilities(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Return why values written with ``writer`` cannot be read with ``reader``; nothing if all of them can.

    Each begins with the place, a JSON pointer into a value, with ``*`` for the items of arrays and maps.
    """
    comparison = _Comparison()
    if comparison.compare(writer.root, reader.root, "", 0):
        return []
    if comparison.is_too_large:
        return ["/: the schemas have too many types, or types nested too deeply, to be compared"]
    return comparison.reasons[:REASONS_MAX]


class _Comparison:
    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.is_too_large = False
        # Pairs that can be read, as far as they were compared: types that use themselves come back to a pair.
        self._readable: dict[tuple[int, int], None] = {}
        self._pairs = 0

    def compare(self, writer: Type, reader: Type, place: str, depth: int) -> bool:
        """Return whether a value of one type can be read as the other; if not, add the reasons."""
        pair = id(writer), id(reader)
        if pair in self._readable:
            return True
        self._pairs += 1
        if self._pairs > PAIRS_MAX or depth > _DEPTH_MAX:
            self.is_too_large = True
            return False
        before = len(self._readable)
        self._readable[pair] = None
        if self._compare(writer, reader, place, depth + 1):
            return True
        # What was found readable meanwhile may have relied on this pair.
        for _ in range(len(self._readable) - before):
            self._readable.popitem()
        return False

    def _refuse(self, place: str, reason: str) -> bool:
        self.reasons.append(f"{place or '/'}: {reason}")
        return False

    def _compare(self, writer: Type, reader: Type, place: str, depth: int) -> bool:
        if writer is reader:
            return True
        if writer.kind == "union":
            # A list first, here and below: each has its reasons.
            branches = [self.compare(branch, reader, place, depth) for branch in writer.branches]
            return all(branches)
        if reader.kind == "union":
            return self._union(writer, reader, place, depth)
        if writer.kind != reader.kind:
            if reader.kind in matching.PROMOTIONS.get(writer.kind, ()):
                return True
            return self._refuse(place, f"{_name(writer)} is not read as {_name(reader)}")
        if writer.name and not matching.names_match(writer, reader):
            reason = (
                f"the {writer.kind} {writer.name} is not read as {reader.name}, which has no alias for it"
            )
            return self._refuse(place, reason)
        if writer.size != reader.size:
            reason = f"{writer.name} has {writer.size} bytes for the writer and {reader.size} for the reader"
            return self._refuse(place, reason)
        if not matching.decimals_match(writer, reader):
            (wrote, wrote_scale), (reads, reads_scale) = writer.decimal, reader.decimal
            reason = (
                f"a decimal of {wrote} digits, {wrote_scale} of them after the point, is not read as one of "
            )
            return self._refuse(place, f"{reason}{reads} digits, {reads_scale} of them after the point")
        match writer.kind:
            case "array" | "map":
                return self.compare(writer.content, reader.content, f"{place}/*", depth)
            case "enum":
                return self._enum(writer, reader, place)
            case "record":
                return self._record(writer, reader, place, depth)
            case _:
                return True

    def _union(self, writer: Type, reader: Type, place: str, depth: int) -> bool:
        before = len(self.reasons)
        # The one that a value is read as first, whose reasons say most.
        likely = matching.matching_branch(writer, reader)
        if likely is not None and self.compare(writer, likely, place, depth):
            return True
        reasons = self.reasons[before:]
        others = (branch for branch in reader.branches if branch is not likely)
        readable = any(self.compare(writer, branch, place, depth) for branch in others)
        self.reasons[before:] = [] if readable else reasons
        if readable or likely is not None:
            return readable
        names = ", ".join(map(_name, reader.branches))
        return self._refuse(place, f"{_name(writer)} is not read as any branch of the union of {names}")

    def _enum(self, writer: Type, reader: Type, place: str) -> bool:
        known = set(reader.symbols)
        unknown = [symbol for symbol in writer.symbols if symbol not in known]
        if not unknown or reader.other_symbol is not None:
            return True
        reason = f"the enum {reader.name} lacks the symbols {', '.join(unknown)} and has no default"
        return self._refuse(place, reason)

    def _record(self, writer: Type, reader: Type, place: str, depth: int) -> bool:
        written = {field.name: field for field in writer.fields}
        fields = [self._field(written, field, f"{place}/{field.name}", depth) for field in reader.fields]
        return all(fields)

    def _field(self, written: dict[str, Field], field: Field, place: str, depth: int) -> bool:
        sources = matching.written_fields(written, field)
        if len(sources) > 1:
            names = ", ".join(source.name for source in sources)
            return self._refuse(place, f"the field can be read from several fields of the writer: {names}")
        if sources:
            return self.compare(sources[0].type, field.type, place, depth)
        if field.default is not NO_DEFAULT:
            return True
        return self._refuse(place, "the writer has no such field, and it has no default")


def _name(type_: Type) -> str:
    return f"{type_.kind} {type_.name}" if type_.name else type_.kind
