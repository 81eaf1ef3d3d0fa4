"""Texts of JSON Schema as JSON values, within bounds, checked against the meta-schema of their draft."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jsonschema_rs

from ..definitions import InvalidSchema
from .reasons import Refusal, cut
from .values import is_array, is_object

# A record of the topic ``_schemas`` holds no more.
TEXT_CHARACTERS_MAX = 1 << 20
# A schema together with those that it refers to.
ALL_CHARACTERS_MAX = 4 << 20
# Schemas of people and generators stay below 40. The functions here and the validator call themselves per level.
DEPTH_MAX = 100

Draft = int
DEFAULT_DRAFT: Draft = 7
_META_SCHEMAS: dict[str, Draft] = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
_URIS = {
    draft: f"http://{uri}#" if draft < 2019 else f"https://{uri}" for uri, draft in _META_SCHEMAS.items()
}

Schema = dict[str, Any] | bool


class Document(NamedTuple):
    """One text; ``name`` is that by which others refer to it, "" for the schema itself."""

    name: str
    schema: Schema
    draft: Draft


def read_documents(text: str, references: Mapping[str, str]) -> list[Document]:
    """Return the schema, and then those that it refers to by name.

    A ``$schema`` with ``https``, or with or without ``#``, is taken as it is meant. Without one, or with that of a
    meta-schema which is not known, the draft is 7, as in other registries.

    Raises:
        InvalidSchema: A text is no JSON, too large, nested too deeply, or no schema of its draft.
    """
    if sum(map(len, references.values())) + len(text) > ALL_CHARACTERS_MAX:
        raise InvalidSchema(f"with its references the schema has more than {ALL_CHARACTERS_MAX} characters")
    documents: list[Document] = []
    for name, each in [("", text), *references.items()]:
        schema = read_json(each, cut(name))
        draft = _draft_of(schema)
        check_schema(schema, draft, f"{cut(name)}#")
        documents.append(Document(name, schema, draft))
    return documents


def check_schema(schema: Any, draft: Draft, place: str) -> None:
    """Refuse what is no schema of its draft. ``place`` is where it stands."""
    if not is_object(schema) and (draft == 4 or not isinstance(schema, bool)):
        raise InvalidSchema(f"{place}: a schema is an object{'' if draft == 4 else ', true or false'}")
    try:
        _meta_schema(draft).validate(schema)
    except jsonschema_rs.ValidationError as error:
        refusal = _refusal_of(error)
        raise InvalidSchema(f"{place}{refusal.pointer}: {refusal.reason}") from None


@functools.cache
def _meta_schema(draft: Draft) -> jsonschema_rs.Validator:
    uri = _URIS[draft]
    # Formats say what ids and references look like. Many are none, and what counts is where they lead.
    return jsonschema_rs.validator_for({"$schema": uri, "$ref": uri}, validate_formats=False, offline=True)


@functools.cache
def meta_schemas(uri: str) -> Sequence[Document]:
    """Return the meta-schema that a reference means, and those of which it consists; none if it means something else."""
    draft = _META_SCHEMAS.get(uri.split("://", 1)[-1])
    if draft is None:
        return ()
    own = _URIS[draft]
    text = write_json(jsonschema_rs.bundle({"$schema": own, "$ref": own}, offline=True))
    # No schema here extends a meta-schema, so a dynamic reference in it means itself.
    for reference in ('"$dynamicRef":"#meta"', '"$recursiveRef":"#"'):
        text = text.replace(reference, f'"$ref":"{own}"')
    bundled = json.loads(text)["definitions" if draft < 2019 else "$defs"]
    return [
        Document(uri if name == own.rstrip("#") else name, schema, draft) for name, schema in bundled.items()
    ]


def _refusal_of(error: jsonschema_rs.ValidationError) -> Refusal:
    kind: Any = error.kind
    if kind.name == "anyOf":
        refusals = [_refusal_of(alternative[0]) for alternative in kind.context if alternative]
        if likely := [
            each for each in refusals if each.word != "type" or each.path != tuple(error.instance_path)
        ]:
            return likely[0]
    limit = kind.types if kind.name == "type" else None if hasattr(kind, "context") else kind.value
    return Refusal(tuple(error.instance_path), kind.name, limit, error.instance)


def read_json(text: str, name: str = "") -> Any:
    """Return a text as JSON. Names that stand twice in an object are refused, because readers differ in which counts."""
    prefix = f"{name}: " if name else ""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise InvalidSchema(f"{prefix}{len(text)} characters are more than {TEXT_CHARACTERS_MAX}")
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_float, parse_int=_integer
        )
        write_json(value).encode()
    except json.JSONDecodeError as error:
        # Its message names no content.
        where = f"line {error.lineno}, column {error.colno}"
        raise InvalidSchema(f"{prefix}it is not JSON: {error.msg} in {where}") from None
    except UnicodeEncodeError:
        raise InvalidSchema(f"{prefix}it has half of a surrogate pair, which is no character") from None
    except RecursionError:
        raise InvalidSchema(f"{prefix}it has more than {DEPTH_MAX} levels") from None
    _check_depth(value, prefix)
    return value


def write_json(value: Any, *, sort_keys: bool = False) -> str:
    """Return a value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise InvalidSchema(f"the name {twice[:100]!r} stands twice in an object")
    return members


def _no_number(text: str) -> Any:
    raise InvalidSchema(f"{text} is no number of JSON")


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise InvalidSchema("a number exceeds a double")
    return number


def _integer(text: str) -> int:
    # Python refuses more digits than 4,300 only, in whose square the time to read them grows.
    if len(text) > 400:
        raise InvalidSchema("an integer has more than 400 digits")
    return int(text)


def _check_depth(value: Any, prefix: str) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for each in level
            for inner in (each.values() if is_object(each) else each if is_array(each) else ())
        ]
        if not level:
            return
    raise InvalidSchema(f"{prefix}it has more than {DEPTH_MAX} levels")


def _draft_of(schema: Any) -> Draft:
    uri = schema.get("$schema") if is_object(schema) else None
    if not isinstance(uri, str):
        return DEFAULT_DRAFT
    return _META_SCHEMAS.get(uri.split("://", 1)[-1].rstrip("#"), DEFAULT_DRAFT)
