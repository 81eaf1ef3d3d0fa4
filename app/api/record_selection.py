"""Read from a request which records to return, and how much of each."""

from __future__ import annotations

from typing import Annotated, Literal

from starlette.requests import Request

from ..broker.topics import SCHEMAS, Topic
from ..query.filters import Filter, make_filter
from ..registry.values import TopicValues
from .openapi.operations import NDJSON, SSE, Content
from .parameters import Choice, Header, Number, Texts
from .records.decoded import AnswerDecoding
from .records.form import RecordForm
from .requests import INT32_MAX
from .schemas import Shown
from .state import api_state

_Conditions = Annotated[list[Annotated[str, Shown(maxLength=1000)]], Shown(name="Conditions", maxItems=16)]
_KEY = Texts("key", "keys that contain this text; =N14228 matches the whole key", _Conditions)
_VALUE = Texts("value", "values that contain this text; =TEXT matches the whole value", _Conditions)
_HEADER = Texts(
    "header",
    "NAME: the header exists; NAME:TEXT: its value contains TEXT; NAME:=TEXT: its value is TEXT",
    _Conditions,
)
_PATH = Texts(
    "json",
    "a path into values that are JSON or have a schema, which must exist, or a comparison: dep_delay > 60",
    _Conditions,
)
PREVIEW = Number("preview", "maximum bytes of each key, value and header; 0 means all", 0, maximum=INT32_MAX)
DECODE: Choice[Literal["json", "raw"]] = Choice(
    "decode",
    "ValueCoding",
    ("json", "raw"),
    "json: show keys and values that name a registered schema as what it says; raw: as their bytes",
    default="json",
)
FILTER = (_KEY, _VALUE, _HEADER, _PATH, PREVIEW, DECODE)
AS: Choice[Literal["json"] | None] = Choice(
    "as", "ValuesAs", ("json",), "json: show values that are valid JSON as JSON, not as strings", default=None
)
LAST_EVENT_ID = Header("Last-Event-ID", "resume after this event")
TOPIC_ID = Header(
    "Topic-Id", "the id of the topic that is meant; another topic of its name is refused with 410"
)
LINE = '{"partition":0,"offset":41,"timestamp":1763664000000,"key":"N14228","value":"{\\"from\\":\\"EWR\\"}","headers":[]}\n'
LINES, EVENTS = Content(NDJSON, str, LINE), Content(SSE, str, f"id: 0:41\ndata: {LINE}\n")


def filter_of(request: Request, topic: Topic) -> Filter:
    """Return the filter of ``key``, ``value``, ``header`` and ``json`` in the query, for records of a topic.

    Raises ``InvalidRequest``.
    """
    return make_filter(
        key=_KEY.read(request),
        value=_VALUE.read(request),
        header=_HEADER.read(request),
        json=_PATH.read(request),
        values=_values(request, topic),
    )


def form_of(request: Request, topic: Topic, *, may_parse: bool = True) -> RecordForm:
    """Return how the query wants records of a topic to be shown: ``as=json``, ``preview`` and ``decode``.

    Raises ``InvalidRequest``.
    """
    values = None if DECODE.read(request) == "raw" else _values(request, topic)
    return RecordForm(may_parse and AS.read(request) == "json", PREVIEW.read(request), values)


def _values(request: Request, topic: Topic) -> TopicValues | None:
    """Return what decodes records of a topic; None: nothing can be decoded."""
    state = api_state(request)
    # Without that topic no schema was ever registered, so nobody need look at the records.
    return state.schemas.of(topic) if state.schemas and state.broker.has_topic(SCHEMAS) else None


def decoding_of(request: Request) -> AnswerDecoding:
    """Return what decodes the records of several topics in one answer. Raises ``InvalidRequest``."""
    state = api_state(request)
    return AnswerDecoding(state.broker, None if DECODE.read(request) == "raw" else state.schemas)
