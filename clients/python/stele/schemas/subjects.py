"""Names of the subjects under which the schemas of a topic are registered."""

from __future__ import annotations

from typing import Literal

Strategy = Literal["topic", "record", "topic-record"]


def subject_name(strategy: Strategy, topic: str, full_name: str | None, *, is_key: bool) -> str:
    """Return the name of a subject.

    ``full_name`` is that of the record or message. Only the strategy ``topic`` tells keys from values.

    Raises:
        ValueError: the strategy needs a name, and the schema has none.
    """
    if strategy == "topic":
        return f"{topic}-{'key' if is_key else 'value'}"
    if not full_name:
        raise ValueError(
            f"the strategy {strategy!r} names a subject after its record, and this schema names none; "
            "use the strategy 'topic', or name the subject"
        )
    return full_name if strategy == "record" else f"{topic}-{full_name}"
