"""Read from a request which records to return, and how much of each."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from stele.wire.record_batch import RecordView

from ..errors import InvalidRequest
from ..query.filters import Filter, make_filter
from .record_json import RecordOut, preview_out, record_out
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


def parse_values_of(request: Request) -> bool:
    """Return whether the query has ``as=json``: values that are JSON appear as JSON.

    Raises ``InvalidRequest``.
    """
    shape = request.query_params.get("as")
    if shape not in (None, "json"):
        raise InvalidRequest(f"as is {shape[:40]!r}; give json, or leave it out")
    return shape == "json"


def preview_of(request: Request, *, parse_values: bool = False) -> Callable[[int, RecordView], RecordOut]:
    """Return the encoder of records: whole, or ``preview`` bytes of each part.

    Raises ``InvalidRequest``.
    """
    bytes_max = integer_parameter(request, "preview", 0, maximum=INT32_MAX)
    if bytes_max:
        return lambda partition, record: preview_out(partition, record, bytes_max=bytes_max)
    return lambda partition, record: record_out(partition, record, parse_values=parse_values)
