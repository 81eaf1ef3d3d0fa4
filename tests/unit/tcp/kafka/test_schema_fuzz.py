"""Whatever bytes a request decoder is given, it returns or raises ``MalformedMessage``, and takes little memory.

The bound of memory: ``BYTES_EACH`` times the input, for the cheapest element on the
wire, a topic without a name and without partitions, is three bytes and becomes an
object of three fields with a list in it, about 140 bytes; and never more than the
``ELEMENTS_MAX`` elements that a message may have.
"""

from __future__ import annotations

import random
import struct
import tracemalloc
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stele.wire import schema
from stele.wire.kafka.api import Api
from stele.wire.kafka.headers import read_client_id
from stele.wire.schema import Field, MalformedMessage, Type, fields_of

from app.tcp.kafka.apis import SERVED
from tests.support.random_messages import random_message

APIS = [pytest.param(row.api, id=row.api.name) for row in SERVED.values()]
BYTES_EACH = 64
# What an exception, its text and its traceback take.
BYTES_ALWAYS = 16 * 1024
# Lengths and counts that lie, classic and flexible.
LIES = [
    struct.pack(">h", -1),
    struct.pack(">h", -2),
    struct.pack(">h", 32767),
    struct.pack(">i", -1),
    struct.pack(">i", -2),
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", -(2**31)),
    struct.pack(">i", 100_001),
    bytes.fromhex("ffffffff0f"),
    bytes.fromhex("ffffffff1f"),
    bytes.fromhex("80808080808080"),
    bytes.fromhex("ffffffffffffffffff01"),
    bytes.fromhex("8000"),
    b"\0",
]


def versions_of(api: Api) -> range:
    return range(api.versions[0], api.versions[1] + 1)


def body_of(api: Api, version: int, seed: int) -> bytes:
    out = bytearray()
    message = random_message(api.request, version, random.Random(seed))
    schema.writer(api.request, version, api.is_flexible(version))(message, out)
    return bytes(out)


@st.composite
def hostile(draw: st.DrawFn, api: Api) -> tuple[int, bytes]:
    """A version, and a body of it: random, or one that was valid before some of it was changed."""
    version = draw(st.sampled_from(versions_of(api)))
    if draw(st.booleans()):
        return version, draw(st.binary(max_size=300))
    body = bytearray(body_of(api, version, draw(st.integers(0, 2**32))))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(body)))
        match draw(st.sampled_from(["lie", "set", "cut", "insert", "repeat"])):
            case "lie":
                lie = draw(st.sampled_from(LIES))
                body[place : place + len(lie)] = lie
            case "set" if place < len(body):
                body[place] = draw(st.integers(0, 255))
            case "cut":
                del body[place : place + draw(st.integers(1, 9))]
            case "repeat":
                body += body[place:]
            case _:
                body[place:place] = draw(st.binary(min_size=1, max_size=9))
    return version, bytes(body)


def read_or_refuse(api: Api, version: int, body: bytes | memoryview) -> str | None:
    """None, or why it was refused."""
    try:
        api.read_request(version, memoryview(body))
    except MalformedMessage as error:
        return str(error)
    return None


@pytest.mark.every(3)
@pytest.mark.parametrize("api", APIS)
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_a_decoder_refuses_what_it_cannot_read_in_one_way_only(api: Api, data: st.DataObject) -> None:
    refusal = read_or_refuse(api, *data.draw(hostile(api)))
    assert refusal is None or 0 < len(refusal) < 300


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_a_request_header_that_cannot_be_read_is_malformed(data: bytes, flexible: bool) -> None:
    frame = memoryview(bytes(8) + data)
    try:
        client_id, position = read_client_id(frame, flexible=flexible)
    except MalformedMessage:
        return
    assert len(client_id) <= 32767
    assert 10 <= position <= len(frame)


@settings(max_examples=100, deadline=None)
@given(st.one_of(st.binary(max_size=40), st.lists(st.sampled_from(LIES), max_size=6).map(b"".join)))
def test_tagged_fields_that_cannot_be_skipped_are_malformed(data: bytes) -> None:
    try:
        assert schema.skip_tagged_fields(data, 0) <= len(data)
    except (MalformedMessage, IndexError):
        return


# ── memory ──


def peak_of(api: Api, version: int, body: bytes) -> int:
    """The most that was allocated at once while the body was read."""
    view = memoryview(body)
    read_or_refuse(api, version, b"")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        read_or_refuse(api, version, view)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before


@pytest.mark.parametrize("api", APIS)
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(data=st.data())
def test_a_decoder_takes_memory_by_the_size_of_its_input_and_not_by_what_that_claims(
    api: Api, data: st.DataObject
) -> None:
    version, body = data.draw(hostile(api))
    assert peak_of(api, version, body) <= BYTES_EACH * len(body) + BYTES_ALWAYS


def crowded(cls: type, version: int, count: int) -> Any:
    """A message whose outer arrays have the smallest element ``count`` times each."""
    return cls(
        **{
            one.name: [_smallest(one.type.element, version)] * count
            if one.type.kind == "array"
            else _least(one, version)
            for one in fields_of(cls)
            if version in one.versions
        }
    )


def _least(one: Field, version: int) -> Any:
    if one.tag is not None:
        return one.default
    return None if version in one.nullable else _smallest(one.type, version)


def _smallest(kind: Type, version: int) -> Any:
    match kind.kind:
        case "string":
            return ""
        case "bytes" | "records":
            return b""
        case "uuid":
            return bytes(16)
        case "bool":
            return False
        case "array":
            return ()
        case "struct":
            return kind.struct_class(
                **{
                    one.name: _smallest(one.type, version) if one.tag is None else one.default
                    for one in fields_of(kind.struct_class)
                    if version in one.versions
                }
            )
        case "int8":
            return 0
        case _:
            # Not one of the small numbers, which are shared.
            return 10_000


@pytest.mark.every(4)
@pytest.mark.parametrize("api", APIS)
def test_the_worst_of_inputs_keeps_to_that_bound(api: Api) -> None:
    # Of versions with the same encoding, one: they differ in a field or two.
    for version in (max(group) for _, group in groupby(versions_of(api), api.is_flexible)):
        flexible = api.is_flexible(version)
        out = bytearray()
        schema.writer(api.request, version, flexible)(crowded(api.request, version, 1_000), out)
        peak = peak_of(api, version, bytes(out))
        assert peak <= BYTES_EACH * len(out) + BYTES_ALWAYS, f"v{version}: {peak} for {len(out)} bytes"


@pytest.mark.every(4)
@pytest.mark.parametrize("api", APIS)
def test_more_elements_than_a_message_may_have_are_refused_before_they_are_made(api: Api) -> None:
    version = api.versions[1]
    arrays = [one for one in fields_of(api.request) if one.type.kind == "array" and version in one.versions]
    if not arrays:
        return
    out = bytearray()
    message = crowded(api.request, version, schema.ELEMENTS_MAX + 1)
    schema.writer(api.request, version, api.is_flexible(version))(message, out)
    with pytest.raises(MalformedMessage, match="more than 100000 elements"):
        api.read_request(version, out)


def test_every_element_of_an_array_takes_a_byte_at_least() -> None:
    for row in SERVED.values():
        for cls in (row.api.request, row.api.response):
            for version in versions_of(row.api):
                for element in _elements(cls, version):
                    assert schema.least_bytes(element, version, row.api.is_flexible(version)) >= 1


def _elements(cls: type, version: int) -> list[Type]:
    """The element types of all arrays in a message, at every depth."""
    found: list[Type] = []
    for one in fields_of(cls):
        if version not in one.versions:
            continue
        kind = one.type
        while kind.kind == "array":
            found.append(kind.element)
            kind = kind.element
        if kind.kind == "struct":
            found += _elements(kind.struct_class, version)
    return found
