"""Operations that search records or get a single one."""

from __future__ import annotations

from ..bodies import RangesBody
from .components import RECORD, STRING, enum
from .parts import (
    FILTER,
    ISOLATION,
    OCTETS,
    OFFSET_OR_TIME,
    PARTITION,
    TOPIC_NAME,
    Operation,
    answers,
    json_content,
    lines_content,
    query,
)
from .request_bodies import request_body

_SEARCH_FORM = [
    TOPIC_NAME,
    *FILTER,
    ISOLATION,
    query(
        "order",
        enum("SearchOrder", "oldest", "newest", default="oldest"),
        "which records come first",
    ),
    query(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": 9223372036854775807},
        "maximum number of matches; with format=events at most 1000000 (default 50), otherwise no limit by default",
    ),
    query(
        "format",
        enum("SearchFormat", "events", "ndjson", "csv", default="events"),
        "format of the answer, see above",
    ),
]
_FOUND = {
    **lines_content(
        '{"progress":{"offsets":0,"of":336776,"scanned":0,"matched":0,"bytes":0,"too_large":0}}\n'
        '{"record":{"partition":0,"offset":41,"timestamp":1763664000000,"key":"N14228",'
        '"value":"{\\"carrier\\":\\"UA\\"}","headers":[]}}\n'
        '{"end":{"reason":"limit","offsets":42,"of":336776,"scanned":42,"matched":1,"bytes":8192,'
        '"too_large":0,"ranges":"0:42-336776","errors":[]}}\n'
    ),
    "text/csv": {"schema": STRING},
}

SEARCH: Operation = {
    "parameters": [
        *_SEARCH_FORM,
        query("from", OFFSET_OR_TIME, "start of the search; default earliest"),
        query("to", OFFSET_OR_TIME, "end of the search, exclusive; default latest"),
        query("partitions", {"type": "string", "examples": ["0,2"]}, "only these partitions"),
        query(
            "ranges",
            {"type": "string", "examples": ["0:42-100"]},
            "ranges of the end of an earlier search: continue after it",
        ),
    ],
    "responses": answers(400, 404, 429, 500, ok=_FOUND),
}

SEARCH_ON: Operation = {
    "parameters": _SEARCH_FORM,
    "requestBody": request_body(RangesBody, {"ranges": "0:42-100,1:0-7"}),
    "responses": answers(400, 404, 413, 415, 429, 500, ok=_FOUND),
}

GET_RECORD: Operation = {
    "parameters": [
        TOPIC_NAME,
        PARTITION,
        {
            "name": "offset",
            "in": "path",
            "required": True,
            "schema": {"type": "integer", "minimum": 0, "maximum": 9223372036854775807},
            "example": 0,
        },
        ISOLATION,
        query("part", enum("RecordPart", "value", "key"), "download only these bytes"),
        FILTER[-1],
    ],
    "responses": answers(
        400,
        404,
        410,
        416,
        500,
        ok={**json_content(RECORD), **OCTETS},
    ),
}
