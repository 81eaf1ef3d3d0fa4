"""Keys and headers of notifications, whose payload any user of the database writes."""

from __future__ import annotations

import pytest
from stele.cdc.records.notifications import notified


@pytest.mark.parametrize(
    ("payload", "key", "operation"),
    [
        ('{"id": "a", "op": "insert"}', b"a", b"insert"),
        ('{"id": ["é", 1.5], "operation": 7}', b'["\\u00e9",1.5]', b"7"),
        # Half of a character, which JSON can name and UTF-8 cannot encode.
        ('{"id": "\\ud800", "op": "\\udfff", "event_id": "\\ud800"}', b"\\ud800", b"\\udfff"),
        ('{"id": {"\\ud800": "\\ud800"}}', b'{"\\ud800":"\\ud800"}', b"notify"),
        ('{"id": null}', b"orders", b"notify"),
        ("[" * 4000, b"orders", b"notify"),
        ("9" * 5000, b"orders", b"notify"),
        ('{"id": NaN}', b"NaN", b"notify"),
        ("", b"orders", b"notify"),
    ],
)
def test_every_payload_is_a_record(payload: str, key: bytes, operation: bytes) -> None:
    event, headers = notified("orders", payload, key_column="id")
    assert (event.key, event.value) == (key, payload.encode())
    assert dict(headers)["operation"] == operation


def test_a_key_of_any_depth_is_a_record() -> None:
    for depth in range(2000):
        payload = '{"id": ' + "[" * depth + "]" * depth + "}"
        event, _ = notified("orders", payload, key_column="id")
        assert event.value == payload.encode()
