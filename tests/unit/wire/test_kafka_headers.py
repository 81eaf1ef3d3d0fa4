"""Headers of requests and responses, byte for byte."""

from __future__ import annotations

import pytest
from stele.wire import schema
from stele.wire.kafka.headers import RequestHead, read_client_id, read_head, response_head
from stele.wire.schema import MalformedMessage


def frame(hexadecimal: str) -> memoryview:
    return memoryview(bytes.fromhex(hexadecimal))


def test_the_fixed_part_is_key_version_and_correlation_id() -> None:
    assert read_head(frame("0012 0003 0000002a ffff")) == RequestHead(18, 3, 42)
    assert read_head(frame("ffff 8000 80000000")) == RequestHead(-1, -32768, -(2**31))


@pytest.mark.parametrize(
    ("behind", "flexible", "client_id", "body_at"),
    [
        pytest.param("ffff", False, "", 10, id="null"),
        pytest.param("0000", False, "", 10, id="empty"),
        pytest.param("0003 616263 99", False, "abc", 13, id="classic"),
        pytest.param("0006 6772c3b6c39f", False, "größ", 16, id="UTF-8"),
        pytest.param("0001 61 00", True, "a", 12, id="flexible, without tagged fields"),
        pytest.param("ffff 00 99", True, "", 11, id="flexible, null"),
        pytest.param("0001 61 02 00 02 aabb 81 01 00 99", True, "a", 19, id="flexible, with unknown ones"),
    ],
)
def test_the_client_id_is_classic_in_every_version_and_tagged_fields_are_skipped(
    behind: str, flexible: bool, client_id: str, body_at: int
) -> None:
    assert read_client_id(frame("0012 0003 0000002a" + behind), flexible=flexible) == (client_id, body_at)


@pytest.mark.parametrize(
    ("behind", "flexible"),
    [
        pytest.param("", False, id="nothing"),
        pytest.param("00", False, id="half a length"),
        pytest.param("0002 61", False, id="cut short"),
        pytest.param("fffe", False, id="length -2"),
        pytest.param("8000", False, id="the least length"),
        pytest.param("7fff 61", False, id="the greatest length"),
        pytest.param("0001 ff", False, id="not UTF-8"),
        pytest.param("0003 eda080", False, id="a surrogate"),
        pytest.param("0001 61", True, id="no tagged fields"),
        pytest.param("0001 61 01 00 05 aa", True, id="a tagged field that is cut short"),
        pytest.param("0001 61 ffffffffff", True, id="a count of more than 32 bits"),
        pytest.param("0001 61 ffffffff0f 00", True, id="four thousand million tagged fields"),
    ],
)
def test_a_header_that_cannot_be_read_is_malformed(behind: str, flexible: bool) -> None:
    with pytest.raises(MalformedMessage):
        read_client_id(frame("0012 0003 0000002a" + behind), flexible=flexible)


def test_a_header_has_a_limit_on_its_tagged_fields() -> None:
    def header(count: int) -> memoryview:
        return frame("0012 0003 0000002a ffff" + schema.varint(count).hex() + "5000" * count)

    assert read_client_id(header(1000), flexible=True) == ("", 2012)
    with pytest.raises(MalformedMessage, match="1001 tagged fields, more than 1000"):
        read_client_id(header(1001), flexible=True)


def test_a_response_begins_with_room_for_its_size_and_the_correlation_id() -> None:
    assert response_head(42, flexible=False) == bytes.fromhex("00000000 0000002a")
    assert response_head(-1, flexible=True) == bytes.fromhex("00000000 ffffffff 00")
