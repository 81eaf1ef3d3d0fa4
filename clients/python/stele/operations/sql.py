"""SQL statements over topics, over HTTP only."""

from __future__ import annotations

from dataclasses import replace

from .base import HttpAnswer, HttpRequest, Operation, error_from_problem, json_request

# The broker has a limit of its own, which is shorter.
_WAIT_S = 3600.0
JSON = "application/json"


class RunSql(Operation[bytes]):
    """Run a statement; return the answer as ``POST /v1/sql`` sends it in a media type."""

    is_repeatable = True
    sql: str
    limit: int | None = None
    media_type: str = JSON

    @property
    def wait_s(self) -> float:
        return _WAIT_S

    def to_http(self) -> HttpRequest:
        request = json_request("POST", "/v1/sql", {"sql": self.sql, "limit": self.limit})
        return replace(request, headers={**request.headers, "Accept": self.media_type})

    def from_http(self, answer: HttpAnswer) -> bytes:
        """Raises the error that ends an answer in JSON early."""
        if self.media_type == JSON and (problem := answer.json().get("error")) is not None:
            raise error_from_problem(problem, status=int(problem["status"]))
        return answer.body
