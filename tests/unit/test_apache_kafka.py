"""Apache Kafka as the control: what its start depends on."""

from __future__ import annotations

import uuid

from load.apache_kafka import random_cluster_id

# In base64 the first six bits of a UUID are its first character: 62 is "-", 63 is "_".
_DASH = uuid.UUID(bytes=bytes([62 << 2]) + bytes(15))
_UNDERSCORE = uuid.UUID(bytes=bytes([63 << 2]) + bytes(15))


def test_a_cluster_id_that_a_tool_would_take_for_an_option_is_drawn_again() -> None:
    drawn = iter([_DASH, _DASH, _UNDERSCORE])

    cluster_id = random_cluster_id(lambda: next(drawn))

    assert cluster_id == "_" + "A" * 21
    assert next(drawn, None) is None
