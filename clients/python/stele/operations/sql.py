"""SQL statements over topics, over HTTP only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .base import HttpAnswer, HttpRequest, Operation, error_from_problem, json_request

# The broker has a limit of its own, which is shorter.
_WAIT_S = 3600.0
JSON, NDJSON = "application/json", "application/x-ndjson"


class RunSql(Operation[bytes]):
    """Run a statement; return the answer as ``POST /v1/sql`` sends it in a media type.

    ``watch`` gets its parts as they come: lines of NDJSON have the progress of the statement.
    """

    is_repeatable = True
    sql: str
    limit: int | None = None
    media_type: str = JSON
    watch: Callable[[bytes], None] | None = None

    @property
    def wait_s(self) -> float:
        return _WAIT_S

    @property
    def watcher(self) -> Callable[[bytes], None] | None:
        return self.watch

    def to_http(self) -> HttpRequest:
        request = json_request("POST", "/v1/sql", {"sql": self.sql, "limit": self.limit})
        return replace(request, headers={**request.headers, "Accept": self.media_type})

    def from_http(self, answer: HttpAnswer) -> bytes:
        """Raises the error that ends an answer in JSON or NDJSON early."""
        last: dict[str, Any] = {}
        if self.media_type == JSON:
            last = answer.json()
        elif self.media_type == NDJSON:
            last = answer.json_lines()[-1]
        if (problem := last.get("error")) is not None:
            raise error_from_problem(problem, status=int(problem["status"]))
        return answer.body
