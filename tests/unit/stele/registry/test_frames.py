"""A key or value names its schema in a header of the record, or before its bytes."""

from __future__ import annotations

import pytest
from stele.registry.frames import Framed, header, prefix, schema_key, unframe
from stele.schemas.framing import NotFramed

GUID = "0c2b9a8e-0000-4000-8000-000000000001"


def test_a_prefix_has_the_id_and_the_indexes_of_a_message() -> None:
    assert prefix(7, None) == b"\0\0\0\0\x07"
    assert prefix(7, (0,)) == b"\0\0\0\0\x07\0"
    assert prefix(7, (2, 1)) == b"\0\0\0\0\x07\x04\x04\x02"
    assert unframe(b"\0\0\0\0\x07abc", (), is_key=False) == Framed(7, b"abc", None)


@pytest.mark.parametrize("is_key", [False, True])
def test_a_header_counts_for_its_own_part_only(is_key: bool) -> None:
    named = header(GUID, None, is_key=is_key)
    assert named[0] == ("__key_schema_id" if is_key else "__value_schema_id")
    assert unframe(b"abc", [("x", None), named], is_key=is_key) == Framed(GUID, b"abc", b"")
    with pytest.raises(NotFramed):
        unframe(b"abc", [named], is_key=not is_key)
    # It precedes a prefix.
    assert unframe(b"\0\0\0\0\x07", [named], is_key=is_key).schema == GUID


def test_a_header_may_have_an_id_and_indexes() -> None:
    assert unframe(b"a", [("__value_schema_id", b"\0\0\0\0\x07\x02\x02")], is_key=False) == Framed(
        7, b"a", b"\x02\x02"
    )
    assert unframe(b"a", [header(GUID, (1,), is_key=False)], is_key=False).in_header == b"\x02\x02"


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        (b"", ()),
        (b"\0\0\0\0", ()),
        (b"\x01\0\0\0\x07", ()),
        # Ids begin with 1, and small integers in eight bytes are common keys.
        (b"\0\0\0\0\0\0\0\x07", ()),
        (b"\0\x80\0\0\0", ()),
        (b"a", [("__value_schema_id", b"\x01short")]),
        (b"a", [("__value_schema_id", b"")]),
    ],
)
def test_what_names_no_schema(data: bytes, headers: list[tuple[str, bytes | None]]) -> None:
    assert schema_key(data, headers, is_key=False) is None
