"""What routes declare, and its description in the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from json import loads
from types import NoneType, UnionType
from typing import Any, Protocol, Union, get_args, get_origin, get_type_hints

from starlette.responses import Response

from ..errors import ANY_ERROR, STATUSES
from ..parameters import IN_PATHS, Parameter, Query
from ..schemas import Components, Schema

JSON, NDJSON, CSV = "application/json", "application/x-ndjson", "text/csv"
SSE, OCTETS = "text/event-stream", "application/octet-stream"
# Tools add parameters to health checks and scrapes; those routes ignore what they do not know.
_STRICT_PREFIX = "/v1/"


@dataclass(frozen=True, slots=True)
class Content:
    """A body or an answer of a media type; ``example`` is its text."""

    media_type: str
    kind: Any = str
    example: str = ""

    def document(self, components: Components) -> Schema:
        content: Schema = {"schema": components.schema_of(self.kind)}
        if self.example:
            content["example"] = loads(self.example) if self.media_type == JSON else self.example
        return {self.media_type: content}


class Body(Protocol):
    """A body that a route decodes."""

    def document(self, components: Components) -> Schema: ...


@dataclass(frozen=True, slots=True)
class Operation:
    """A route as it was declared; see ``Routes``."""

    method: str
    path: str
    handler: Callable[..., Any]
    parameters: Sequence[Parameter]
    status: int
    body: Body | Sequence[Content]
    answers: Sequence[Content]
    example: str
    also: Mapping[int, str]
    errors: Sequence[int]
    # Whether a parameter in the query that is not declared is refused.
    is_strict: bool = True

    @property
    def query(self) -> Query | None:
        """The parameters that the query may have, None if any."""
        if not self.is_strict or not self.path.startswith(_STRICT_PREFIX):
            return None
        return Query(f"{self.method} {self.path.replace(':path', '')}", self.parameters)

    def document(self, components: Components) -> Schema:
        names: list[str] = re.findall(r"\{(\w+)", self.path)
        parameters = [*(IN_PATHS[name] for name in names), *self.parameters]
        described: Schema = {}
        if parameters:
            described["parameters"] = [parameter.document(components) for parameter in parameters]
        if isinstance(self.body, Sequence):
            if self.body:
                described["requestBody"] = {"content": _contents(self.body, components), "required": True}
        else:
            described["requestBody"] = self.body.document(components)
        described["responses"] = {**self._successes(components), **self._errors()}
        return described

    def _successes(self, components: Components) -> Schema:
        returned = get_type_hints(self.handler, include_extras=True)["return"]
        parts = get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,)
        kinds = [kind for kind in parts if kind not in (NoneType, Response)]
        answers = self.answers or [Content(JSON, kind, self.example) for kind in kinds]
        content = {"content": _contents(answers, components)} if answers else {}
        descriptions = {self.status: "Success", **self.also}
        return {str(status): {"description": text, **content} for status, text in descriptions.items()}

    def _errors(self) -> Schema:
        """Refer to the answers of errors: those declared, and those of whatever reads a query or a body."""
        statuses = {
            *self.errors,
            *((400,) if self.query is not None else ()),
            *((400, 413, 415) if self.body else ()),
        }
        names = {str(status): STATUSES[status][0] for status in sorted(statuses)} | {"default": ANY_ERROR}
        return {status: {"$ref": f"#/components/responses/{name}"} for status, name in names.items()}


def _contents(contents: Sequence[Content], components: Components) -> Schema:
    return {name: part for content in contents for name, part in content.document(components).items()}


# By the name of their function, which is the operation id of the document.
OPERATIONS: dict[str, Operation] = {}
