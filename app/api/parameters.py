"""Parameters of routes: each declaration reads a parameter from a request and describes it in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Annotated, Any, Generic, Self, TypeVar, cast

from starlette.requests import Request
from stele.wire.isolation_level import IsolationLevel
from stele.wire.notation import INT64_MAX, parse_boolean, parse_signed, parse_whole

from ..errors import InvalidRequest
from ..spelling import nearest
from .errors import HttpError
from .requests import INT32_MAX
from .schemas import Components, Schema, Shown

_T = TypeVar("_T")
_SHOWN_CHARACTERS = 40


class Parameter:
    """A parameter in the query, unless a subclass says otherwise; ``kind`` is its type in the document."""

    place = "query"
    may_repeat = False

    def __init__(
        self, name: str, description: str, kind: Any = str, *, is_required: bool = False, **keywords: Any
    ) -> None:
        self.name = name
        self.is_required = is_required
        self._description = description
        self._kind = kind
        self._keywords = keywords

    def only_for(self, answer: str) -> Self:
        """Return the same parameter, described as one for one kind of ``answer``."""
        other = copy(self)
        other._description = f"{answer}: {self._description}"
        return other

    def document(self, components: Components) -> Schema:
        described: Schema = {"name": self.name, "in": self.place, "required": self.is_required}
        described["schema"] = components.schema_of(self._kind)
        if self._description:
            described["description"] = self._description
        return described | self._keywords


class Text(Parameter):
    """Any text."""

    def read(self, request: Request, default: str = "") -> str:
        return request.query_params.get(self.name, default)

    def given(self, request: Request) -> str | None:
        return request.query_params.get(self.name)


class Texts(Parameter):
    """A parameter that may be given several times."""

    may_repeat = True

    def read(self, request: Request) -> list[str]:
        return request.query_params.getlist(self.name)


class Number(Parameter):
    """A whole number within bounds.

    ``shown_maximum`` is described where a greater number is taken for it; ``default`` is described if it does not depend
    on the request.
    """

    def __init__(
        self,
        name: str,
        description: str,
        default: int | None = None,
        *,
        minimum: int = 0,
        maximum: int = INT64_MAX,
        shown_maximum: int | None = None,
    ) -> None:
        bounds: Schema = {"minimum": minimum, "maximum": maximum if shown_maximum is None else shown_maximum}
        if default is not None:
            bounds["default"] = default
        super().__init__(name, description, Annotated[int, Shown(**bounds)])
        self._default, self._minimum, self._maximum = default, minimum, maximum

    def read(self, request: Request, default: int | None = None, *, maximum: int | None = None) -> int:
        """Return the number, or the default if there is none. Raises ``InvalidRequest``."""
        text = request.query_params.get(self.name)
        if text is None:
            value = self._default if default is None else default
            assert value is not None, f"{self.name} has no default"
            return value
        number, most = parse_signed(text), self._maximum if maximum is None else maximum
        if number is None or not self._minimum <= number <= most:
            raise InvalidRequest(
                f"{self.name} is {text[:_SHOWN_CHARACTERS]!r}; it must be a whole number from {self._minimum} to {most}"
            )
        return number

    def is_given(self, request: Request) -> bool:
        return self.name in request.query_params


class Flag(Parameter):
    """``true`` or ``false``."""

    def __init__(self, name: str, description: str, *, default: bool = False) -> None:
        super().__init__(name, description, Annotated[bool, Shown(default=default)])
        self._default = default

    def read(self, request: Request) -> bool:
        """Return the value. Raises ``InvalidRequest``."""
        text = request.query_params.get(self.name)
        value = self._default if text is None else parse_boolean(text)
        if value is None:
            raise InvalidRequest(
                f"{self.name} is {text and text[:_SHOWN_CHARACTERS]!r}; it must be true or false"
            )
        return value


class Choice(Parameter, Generic[_T]):
    """One of ``values``, an enumeration with the name ``component``; ``default`` None if it may be left out."""

    def __init__(
        self, name: str, component: str, values: Sequence[_T], description: str, *, default: _T
    ) -> None:
        names = cast("Sequence[str]", values)
        keywords: Schema = {} if default is None else {"default": default}
        shown = Shown(name=component, enum=list(names), **keywords)
        super().__init__(name, description, Annotated[str, shown])
        self._values: dict[str | None, _T] = dict(zip(names, values, strict=True))
        self._default = default

    def read(self, request: Request) -> _T:
        """Return the value. Raises ``InvalidRequest``."""
        text = request.query_params.get(self.name)
        if text is None:
            return self._default
        if text not in self._values:
            *others, last = map(str, self._values)
            values = f"{', '.join(others)} or {last}" if others else last
            raise InvalidRequest(
                f"{self.name} is {text[:_SHOWN_CHARACTERS]!r}; give {values}, or leave it out"
            )
        return self._values[text]


class Header(Parameter):
    """A header of the request."""

    place = "header"

    def given(self, request: Request) -> str | None:
        return request.headers.get(self.name.lower())


class InPath(Parameter):
    """A part of the path, as text; every path that has a part of this name has this parameter."""

    place = "path"

    def __init__(self, name: str, example: object, description: str = "", **keywords: Any) -> None:
        kind = Annotated[str, Shown(**keywords)]
        super().__init__(name, description, kind, is_required=True, example=example)
        IN_PATHS[name] = self

    def read(self, request: Request) -> str:
        return str(request.path_params[self.name])


class NumberInPath(InPath):
    """A whole number in the path."""

    def __init__(self, name: str, example: int, *, maximum: int = INT32_MAX) -> None:
        super().__init__(name, example)
        self._kind = Annotated[int, Shown(minimum=0, maximum=maximum)]
        self._maximum = maximum

    def number(self, request: Request) -> int:
        """Return the number. Raises ``HttpError`` 404 if it is not one."""
        text = self.read(request)
        number = parse_whole(text, self._maximum)
        if number is None:
            raise HttpError(
                404,
                f"{self.name} is {text[:_SHOWN_CHARACTERS]!r}; it must be a whole number from 0 to {self._maximum}",
            )
        return number


class Query:
    """The parameters that the query of a ``target``, such as ``GET /v1/topics``, may have."""

    def __init__(self, target: str, parameters: Sequence[Parameter]) -> None:
        self._target = target
        self._known = {
            parameter.name: parameter for parameter in parameters if parameter.place == Parameter.place
        }

    def check(self, request: Request) -> None:
        """Raise ``InvalidRequest`` if a parameter is not known, or is given twice and has one value."""
        if not request.scope["query_string"]:
            return
        seen: set[str] = set()
        for name, _ in request.query_params.multi_items():
            parameter = self._known.get(name)
            if parameter is None:
                raise InvalidRequest(self._unknown(name))
            if name in seen and not parameter.may_repeat:
                raise InvalidRequest(f"{name} is given several times; give it once")
            seen.add(name)

    def _unknown(self, name: str) -> str:
        if name:
            meant = nearest(name.lower(), self._known)
            problem = f"there is no query parameter {name[:_SHOWN_CHARACTERS]!r}"
            problem += "" if meant is None else f", did you mean {meant}?"
        else:
            problem = "a query parameter has no name"
        names = ", ".join(sorted(self._known))
        return f"{problem}; {self._target} has {f'the parameters {names}' if names else 'none'}"


IN_PATHS: dict[str, InPath] = {}
_ANY_TEXT = "any text, percent-encoded; encode a slash as %2F"
TOPIC = InPath("topic", "orders", pattern="^[a-zA-Z0-9._-]{1,249}$")
PARTITION = NumberInPath("partition", 0)
OFFSET = NumberInPath("offset", 0, maximum=INT64_MAX)
KEY = InPath("key", "ada", "percent-encoded; any bytes")
PRODUCER_ID = NumberInPath("producer_id", 1, maximum=INT64_MAX)
GROUP = InPath("group", "billing", _ANY_TEXT, minLength=1, maxLength=1024)
MIRROR = InPath("mirror", "prod", minLength=1, maxLength=100)
MEMBER_ID = InPath("member_id", "http-0b5f")
TRANSACTIONAL_ID = InPath("transactional_id", "job-7", _ANY_TEXT, minLength=1, maxLength=1024)
USER = InPath("user", "alice")
KEY_ID = InPath("key_id", "0123456789ab")

_PREFIX = "only names that start with this text"
_SEARCH = "only {names} that contain this text, ignoring case"
SEARCH_NAMES, PREFIX = Text("search", _SEARCH.format(names="names")), Text("prefix", _PREFIX)
SEARCH_IDS = Text("search", _SEARCH.format(names="ids"))
PAGE = Number("page", "page number, from 1", 1, minimum=1, maximum=INT32_MAX)
AFTER = Text("after", "next_after of the previous page")

OffsetOrTime = Annotated[str, Shown(examples=["earliest", "latest", "42", "-1h", "2026-11-20T10:00Z"])]
ISOLATION: Choice[str] = Choice(
    "isolation",
    "Isolation",
    ("read_committed", "read_uncommitted"),
    "read_uncommitted: include records of open and aborted transactions",
    default="read_committed",
)


def isolation_of(request: Request) -> IsolationLevel:
    """Return ``isolation`` from the query. Raises ``InvalidRequest``."""
    return IsolationLevel[ISOLATION.read(request).upper()]
