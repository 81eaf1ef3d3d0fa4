"""A large JSON body is decoded in many turns of the loop, to what it is when decoded at once."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from app.api.errors import HttpError
from app.api.records import large_bodies, large_records, large_strings
from app.api.records.json_records import NewRecord, ProduceBody, decode_produce_body, decode_record
from app.errors import InvalidRequest
from app.work_budget import TURN_BYTES
from tests.support.turns import Turns

MIB = 1024 * 1024
_REFUSED = (InvalidRequest, msgspec.DecodeError, UnicodeDecodeError)
_BLANKS = (b"", b"", b"", b"", b" ", b"\n\t ", b"\r")
_CHARACTERS = (
    "a",
    "é",
    "😀",
    "\\\\",
    '\\"',
    "\\n",
    "\\u0041",
    "\\ud83D\\uDe00",
    "\\/",
    ",",
    "]",
    "}",
    "{",
    "[",
    ":",
    " ",
)
_NUMBERS = (b"0", b"-1", b"12.5e3", b"1e999", b"123456789012345678901234567890", b"true", b"false", b"null")
_NOISE = (b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\0", b"\xff", b"1", b" ", b"u")


def blank() -> bytes:
    return random.choice(_BLANKS)


def joined(parts: list[bytes]) -> bytes:
    return (blank() + b"," + blank()).join(parts) + blank()


def string() -> bytes:
    size = random.choice((0, 1, 3, 8, 20, 60))
    return '"{}"'.format("".join(random.choice(_CHARACTERS) for _ in range(size))).encode()


def value(depth: int = 0) -> bytes:
    match random.randrange(8 if depth < 4 else 4):
        case 0:
            return random.choice(_NUMBERS)
        case 1 | 2 | 3:
            return string()
        case 4 | 5:
            return b"[" + blank() + joined([value(depth + 1) for _ in range(random.randrange(5))]) + b"]"
        case _:
            members = [string() + blank() + b":" + value(depth + 1) for _ in range(random.randrange(5))]
            return b"{" + blank() + joined(members) + b"}"


def record(*, repeats: bool) -> bytes:
    fields: dict[bytes, Callable[[], bytes]] = {
        b'"value"': value,
        b'"v\\u0061lue"': value,
        b'"key"': lambda: b'"k"',
        b'"headers"': lambda: b'[{"key":"h","value":"x"}]',
        b'"value_b64"': lambda: random.choice((b'"QUFB"' * 1, b'"' + b"QU\\u0046B" * 30 + b'"')),
    }
    if not repeats:
        del fields[random.choice((b'"value"', b'"v\\u0061lue"'))]
    names = random.sample(list(fields), random.choice((1, 1, 1, 2, 3)))
    if repeats and random.random() < 0.1:
        names.append(names[0])
    return (
        b"{" + blank() + joined([name + blank() + b":" + blank() + fields[name]() for name in names]) + b"}"
    )


def body(*, repeats: bool) -> bytes:
    """Return a valid body, which may name a member several times: then the last one counts."""
    count = random.choice((1, 1, 1, 1, 2, 0)) if repeats else 1
    name = random.choice((b'"records"', b'"records"', b'"rec\\u006frds"'))
    lists = [
        name
        + blank()
        + b":"
        + blank()
        + b"["
        + blank()
        + joined([record(repeats=repeats) for _ in range(random.randrange(5))])
        + b"]"
        for _ in range(count)
    ]
    return blank() + b"{" + blank() + joined(lists) + b"}" + blank()


def damaged(text: bytes) -> bytes:
    broken = bytearray(text)
    at = random.randrange(len(broken))
    match random.randrange(3):
        case 0:
            del broken[at]
        case 1:
            broken[at:at] = random.choice(_NOISE)
        case _:
            del broken[at:]
    return bytes(broken)


def decoded_at_once(text: bytes) -> list[NewRecord]:
    return [decode_record(each) for each in decode_produce_body(text).records]


async def decoded_in_turns(text: bytes) -> list[NewRecord]:
    records: list[NewRecord] = []
    for each in (await large_bodies.decode_body(text, ProduceBody, records_max=100_000)).records:
        parsed, decoded = await large_records.parse_in_turns(each)
        records.append(await large_records.to_record_in_turns(parsed, len(each), decoded))
    return records


async def test_random_bodies_are_decoded_and_refused_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()
    monkeypatch.setattr(large_bodies, "TURN_BYTES", 0)
    # Of values; null is smaller.
    monkeypatch.setattr(large_records, "TURN_BYTES", 8)
    for _ in range(4000):
        monkeypatch.setattr(large_bodies, "VALUE_BYTES_MAX", random.choice((64, 100, 1000)))
        monkeypatch.setattr(large_bodies, "_GROUP_BYTES", random.choice((8, 30, 100)))
        monkeypatch.setattr(large_bodies, "_PIECE_BYTES", random.choice((2, 3, 7, 64)))
        monkeypatch.setattr(large_strings, "PIECE_BYTES", random.choice((12, 20)))
        text = body(repeats=True) if random.random() < 0.6 else damaged(body(repeats=False))
        try:
            expected = decoded_at_once(text)
        except _REFUSED:
            expected = None
        try:
            found = await decoded_in_turns(text)
        except _REFUSED as error:
            if "beside its value" in str(error):
                seen["too large"] += 1
                continue
            found = None
        except HttpError:
            # The member that is not known has more than the records may have beside them.
            assert expected is None
            found = None
        # What does not count, because a member of the same name follows, is not checked in the same way.
        assert found == expected, text
        seen["refused" if found is None else "decoded"] += 1
    assert min(seen["refused"], seen["decoded"]) > 500
    assert seen["too large"] < 1000


def of(content: bytes) -> bytes:
    return b'{"records":[' + content + b"]}"


_LARGE = {
    "records": of(b",".join([b'{"key":"k","value":{"from":"EWR", "to":[1,{"a":2},{"b":3}]}}'] * 50_000)),
    "string": of(b'{"value":"' + b'a\\"' * MIB + b'"}'),
    "base64": of(b'{"value_b64":"' + b"QU\\u0046B" * (MIB // 2) + b'" }'),
    "array of numbers": of(b'{"value":[' + b"1.5, " * MIB + b'1],"key":"k"}'),
    "array of objects": of(b'{"value":[' + b'{"a":[{"b":1},{}]}, ' * (MIB // 4) + b"[]]}"),
    "nested": of(b'{"value":' + b'{"a":[1,' * 14 + b'"x",' * MIB + b'" "' + b"] }" * 14 + b"}"),
    "object": of(json.dumps({"value": {f"name {n}": n for n in range(200_000)}}).encode()),
}


@pytest.mark.parametrize("text", _LARGE.values(), ids=_LARGE)
async def test_a_large_body_is_decoded_in_many_turns(text: bytes) -> None:
    turns = Turns()
    await asyncio.sleep(0)
    found = await decoded_in_turns(text)
    turns.close()
    assert found == decoded_at_once(text)
    assert turns.count > len(text) / TURN_BYTES


@pytest.mark.parametrize("text", _LARGE.values(), ids=_LARGE)
async def test_no_decoder_gets_more_than_a_turn_allows(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def watched(decode: Callable[..., object]) -> Callable[..., object]:
        def noted(given: bytes | memoryview) -> object:
            sizes.append(len(given))
            return decode(given)

        return noted

    for module, name in (
        (large_bodies, "_skip"),
        (large_bodies, "_decode_list"),
        (large_bodies, "compacted"),
        (large_records, "parse_record"),
        (large_records, "compacted"),
        (large_strings, "decode_string"),
    ):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    await decoded_in_turns(text)
    assert max(sizes) <= large_bodies.VALUE_BYTES_MAX + 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (of(b'{"key":"' + b"k" * 3 * MIB + b'","value":1}'), "beside its value"),
        (of(b'{"value":1,"headers":[' + b"1," * 2 * MIB + b"1]}"), "beside its value"),
        (of(b'{"value":' + b"[" * 40 + b"1," * 2 * MIB + b"1" + b"]" * 40 + b"}"), "more than 32 levels"),
        (of(b'{"value":' + b"1" * 3 * MIB + b"}"), "beside its value"),
        (
            of(b'{"value":"' + b"a" * 3 * MIB + b"\\x" + b'"}'),
            r"invalid escape character in string \(byte 3145731\)",
        ),
        (of(b'{"value":["' + b"a" * 3 * MIB + b"\xff" + b'"]}'), "UTF-8"),
        (of(b'{"value":[1,' + b'"a",' * MIB + b"]}"), "trailing comma"),
        (of(b'{"value":"' + b"a" * 3 * MIB), "truncated"),
        (of(b'{"value":1},' * 30_000), "trailing comma in array"),
        (b'{"x":"' + b"a" * MIB + b'","records":[]}', "unknown field `x`"),
    ],
)
async def test_a_large_body_that_is_not_valid_is_refused(text: bytes, error: str) -> None:
    with pytest.raises(_REFUSED, match=error):
        await decoded_in_turns(text)


async def test_little_may_stand_beside_the_records() -> None:
    with pytest.raises(HttpError, match="beside its records; send less at once"):
        await decoded_in_turns(b'{"x":"' + b"a" * 3 * MIB + b'","records":[]}')


async def test_a_body_has_a_limit_on_its_records() -> None:
    text = of(b",".join([b"{}"] * 100_001))
    with pytest.raises(HttpError, match="more than 1000 records; send fewer, or stream NDJSON") as refused:
        await large_bodies.decode_body(text, ProduceBody, records_max=1000)
    assert refused.value.problem["limit"] == 1000
    # Commas in the values of records are none between them.
    text = of(b",".join([b'{"value":"' + b"," * 500 + b'"}'] * 1000))
    assert len((await large_bodies.decode_body(text, ProduceBody, records_max=1000)).records) == 1000
