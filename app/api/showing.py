"""Read from a request which records to return, and how much of each."""

from __future__ import annotations

from starlette.requests import Request

from ..errors import InvalidRequest
from ..query.filters import Filter, make_filter
from .records.record_form import RecordForm
from .requests import INT32_MAX, integer_parameter


def filter_of(request: Request) -> Filter:
    """Return the filter of ``key``, ``value``, ``header`` and ``json`` in the query.

    Raises ``InvalidRequest``.
    """
    query = request.query_params
    return make_filter(
        key=query.getlist("key"),
        value=query.getlist("value"),
        header=query.getlist("header"),
        json=query.getlist("json"),
    )


def form_of(request: Request, *, may_parse: bool = True) -> RecordForm:
    """Return how the query wants records to be shown: ``as=json`` and ``preview``.

    Raises ``InvalidRequest``.
    """
    shape = request.query_params.get("as") if may_parse else None
    if shape not in (None, "json"):
        raise InvalidRequest(f"as is {shape[:40]!r}; give json, or leave it out")
    return RecordForm(shape == "json", integer_parameter(request, "preview", 0, maximum=INT32_MAX))
