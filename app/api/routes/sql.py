"""Run SQL statements over topics."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic
from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from ...errors import InvalidRequest, SteleError
from ...security.acl import DESCRIBE_TOPIC, READ_TOPIC
from ...sql.statements import Outcome, Progress, Rights
from ..errors import HttpError, Problem, problem_of, problem_response
from ..guarded_route import GuardedRoute
from ..json_bodies import JsonBody
from ..openapi.operations import CSV, JSON, NDJSON, Content
from ..records.arrow import MEDIA_TYPE as ARROW
from ..records.json_records import encode
from ..records.stream_slots import AnswerAborted, SlottedStream
from ..requests import negotiate
from ..rights import is_seen, require
from ..routing import Routes
from ..schemas import Shown
from ..state import api_state

route = Routes("sql", GuardedRoute)
_Parts = AsyncGenerator[bytes | Progress | Outcome]
_FORMS = {JSON: "json", NDJSON: "lines", CSV: "csv", ARROW: "arrow"}
_EXTRA = (
    "SQL needs the extra sql, which is not installed on the broker: run pip install 'stele-broker[sql]' there"
)


class SqlColumn(TypedDict):
    name: str
    type: Annotated[str, Shown("as DuckDB names it", examples=["BIGINT"])]


class SqlAnswer(TypedDict):
    columns: list[SqlColumn]
    rows: list[list[Any]]
    row_count: NotRequired[int]
    is_truncated: NotRequired[Annotated[bool, Shown("whether the answer has more rows than the limit")]]
    offsets: NotRequired[Annotated[int, Shown("read from logs")]]
    bytes: NotRequired[Annotated[int, Shown("read from logs and buckets")]]
    elapsed_ms: NotRequired[int]
    error: NotRequired[Annotated[Problem, Shown("why the answer ends early; without it, it is complete")]]


class SqlBody(Struct, forbid_unknown_fields=True):
    """A statement."""

    sql: Annotated[str, Shown("one SELECT; topics are its tables")]
    limit: Annotated[int | None, Shown("end the answer after so many rows", minimum=1)] = None


_BODY = JsonBody(SqlBody, '{"sql": "select _key, count(*) from orders group by all", "limit": 100}')
_ANSWERS = (
    Content(
        JSON,
        SqlAnswer,
        '{"columns": [{"name": "_key", "type": "VARCHAR"}, {"name": "count_star()", "type": "BIGINT"}], '
        '"rows": [["ada", 2]], "row_count": 1, "is_truncated": false, "offsets": 2, "bytes": 140, "elapsed_ms": 12}',
    ),
    Content(
        NDJSON,
        str,
        '{"progress":{"offsets":0,"of":336776,"bytes":0}}\n'
        '{"columns":[{"name":"n","type":"BIGINT"}]}\n'
        '{"rows":[[336776]]}\n'
        '{"end":{"row_count":1,"is_truncated":false,"offsets":336776,"bytes":41943040,"elapsed_ms":2100}}\n',
    ),
    Content(CSV),
    Content(ARROW, bytes),
)


@route(
    "POST /v1/sql",
    "Run a SQL statement",
    body=_BODY,
    answers=_ANSWERS,
    errors=(403, 404, 406, 410, 429, 500, 503),
)
async def run_sql(request: Request) -> Response:
    """Run a SELECT over topics, and return its rows as they are found.

    A topic is a table with the columns `_partition`, `_offset`, `_timestamp`, `_key` and `_headers`, and with those of its
    values if they have a schema, otherwise `value`. The statement sees all records that were visible when it began, and no later ones. It needs the right to read every topic
    that it names; names with dots or dashes stand in double quotes. The statement is stopped when the client
    disconnects.

    `Accept` chooses between JSON, NDJSON with progress, CSV and an Arrow stream. An error after the first row is the
    `error` of JSON, a line `{"error":…}` of NDJSON, and breaks off CSV and Arrow.
    """
    state = api_state(request)
    sql = state.sql
    if sql is None or not state.settings.sql_statements_max:
        raise HttpError(501, "this broker runs no SQL: sql_statements_max is 0")
    if not sql.is_installed:
        raise HttpError(501, _EXTRA)
    media_type = negotiate(request, (JSON, NDJSON, CSV, ARROW))
    body = await _BODY.read(request)
    if body.limit is not None and body.limit < 1:
        raise InvalidRequest(f"limit is {body.limit}; it must be at least 1")
    rights = Rights(
        check=lambda names: require(request, READ_TOPIC, names), sees=is_seen(request, DESCRIBE_TOPIC)
    )
    parts = sql.run(body.sql, form=_FORMS[media_type], limit=body.limit, rights=rights)
    encoded = {JSON: _json, NDJSON: _lines}.get(media_type, _plain)(parts)
    return _StatementResponse(encoded, state.sql_slots, media_type=media_type)


class _StatementResponse(SlottedStream):
    """Answers with the status of an error if there is one before the first row."""

    async def stream_response(self, send: Send) -> None:
        content = self._content
        try:
            first = await anext(content)
        except SteleError as error:
            response = problem_response(problem_of(error))
            await send(
                {
                    "type": "http.response.start",
                    "status": response.status_code,
                    "headers": response.raw_headers,
                }
            )
            await send({"type": "http.response.body", "body": response.body})
            return
        self.body_iterator = _after(first, content)
        await super().stream_response(send)


async def _after(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for part in rest:
        if part:
            yield part


def _end(outcome: Outcome, since_s: float) -> dict[str, Any]:
    return {
        "row_count": outcome.rows,
        "is_truncated": outcome.is_truncated,
        "offsets": outcome.read.offsets,
        "bytes": outcome.read.bytes,
        "elapsed_ms": round((monotonic() - since_s) * 1000),
    }


async def _json(parts: _Parts) -> AsyncGenerator[bytes]:
    since_s, is_begun = monotonic(), False
    async with aclosing(parts):
        try:
            async for part in parts:
                if isinstance(part, bytes):
                    is_begun = True
                    yield part
                elif isinstance(part, Outcome):
                    yield b"]," + encode(_end(part, since_s))[1:]
        except SteleError as error:
            if not is_begun:
                raise
            yield b'],"error":' + encode(problem_of(error)) + b"}"


async def _lines(parts: _Parts) -> AsyncGenerator[bytes]:
    since_s, is_begun = monotonic(), False
    async with aclosing(parts):
        try:
            async for part in parts:
                is_begun = True
                if isinstance(part, bytes):
                    yield part
                elif isinstance(part, Outcome):
                    yield encode({"end": _end(part, since_s)}) + b"\n"
                else:
                    progress = {"offsets": part.offsets, "of": part.of, "bytes": part.bytes}
                    yield encode({"progress": progress}) + b"\n"
        except SteleError as error:
            if not is_begun:
                raise
            yield encode({"error": problem_of(error)}) + b"\n"


async def _plain(parts: _Parts) -> AsyncGenerator[bytes]:
    is_begun = False
    async with aclosing(parts):
        try:
            async for part in parts:
                if isinstance(part, bytes):
                    is_begun = True
                    yield part
        except SteleError as error:
            if not is_begun:
                raise
            raise AnswerAborted(str(error)) from error
