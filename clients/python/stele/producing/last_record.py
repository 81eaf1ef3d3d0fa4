"""Finds the last committed record of a topic.

A writer of transactions keeps its progress there.
"""

from __future__ import annotations

from ..client import Client
from ..errors import UnknownTopicError

# Most transactions end with one record and a marker.
_FIRST_STEP = 16


def last_committed_value(client: Client, topic: str) -> bytes | None:
    """Return the value of the last committed record in partition 0.

    None if there is none, or no topic.

    Open transactions hide what was committed after they began, so those of other writers of the topic
    must have ended, or be fenced. Raises SteleClientError.
    """
    try:
        end = client.list_offset(topic, 0) or 0
        start = client.list_offset(topic, 0, "earliest") or 0
    except UnknownTopicError:
        return None
    step = _FIRST_STEP
    while True:
        first = max(start, end - step)
        last: bytes | None = None
        offset = first
        while offset < end:
            page = client.fetch(topic, 0, offset)
            if page.records:
                last = page.records[-1].value
            if page.next_offset <= offset:
                break
            offset = page.next_offset
        if last is not None or first == start:
            return last
        step *= _FIRST_STEP
