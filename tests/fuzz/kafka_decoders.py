"""Coverage-guided fuzzing of what reads bytes behind the Kafka listener, with atheris (libFuzzer).

    make fuzz                      for a minute
    make fuzz FUZZ_SECONDS=3600    for an hour
    python -m tests.fuzz.kafka_decoders FILE    the input of a finding, once more

An input's first two bytes choose what reads the rest: the decoder of a request by its API key
and version, the request header, or the message sets of old. A finding is any error but
the one that says "malformed", or a message that is written otherwise than it was read.
"""

from __future__ import annotations

import importlib
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stele.wire import record_batch as rb
from stele.wire import schema
from stele.wire.kafka.headers import read_client_id

from app.tcp.kafka import message_set
from app.tcp.kafka.apis import SERVED
from tests.support.random_messages import leaves, random_message

SEEDS_EACH = 2
# What an input begins with that is no request; requests begin with their API key and version.
HEADER = b"\xff\0"
FLEXIBLE_HEADER = b"\xff\1"
MESSAGE_SET = b"\xff\2"
# Where libFuzzer leaves the input of a finding; `make test` reads it again.
CASES = Path(__file__).with_name("cases")

Target = Callable[[bytes], None]


def request_target(cls: type[Any], version: int, flexible: bool, instrument: Callable[[Any], Any]) -> Target:
    # Compiled from a string, so the instrumentation of imports does not see it.
    instrument(schema.reader(cls, version, flexible))
    write = schema.writer(cls, version, flexible)

    def target(data: bytes) -> None:
        try:
            message, end = schema.read_message(cls, version, flexible, memoryview(data))
        except schema.MalformedMessage:
            return
        assert end <= len(data)
        out = bytearray()
        write(message, out)
        again, _ = schema.read_message(cls, version, flexible, out)
        assert leaves(again, version) == leaves(message, version)

    return target


def header_target(flexible: bool) -> Target:
    def target(data: bytes) -> None:
        try:
            _, position = read_client_id(memoryview(bytes(8) + data), flexible=flexible)
        except schema.MalformedMessage:
            return
        assert position <= 8 + len(data)

    return target


def message_set_target(data: bytes) -> None:
    try:
        batches = message_set.up_convert(data)
    except message_set.InvalidMessageSet:
        return
    # What is stored must be what a producer could have sent, and be told to the old again.
    headers = rb.check_produced(batches)
    records = sum(len(rb.decode_records(batches, header)) for header in headers)
    assert records == sum(header.record_count for header in headers)
    for magic in (0, 1):
        down = message_set.down_convert(batches, magic=magic, from_offset=0, max_bytes=len(batches))
        message_set.up_convert(down)


def targets_and_seeds(instrument: Callable[[Any], Any]) -> tuple[dict[bytes, Target], list[bytes]]:
    """Return what reads inputs by their first two bytes, and valid inputs to begin with."""
    targets: dict[bytes, Target] = {
        HEADER: header_target(False),
        FLEXIBLE_HEADER: header_target(True),
        MESSAGE_SET: message_set_target,
    }
    seeds = [HEADER + b"\0\3abc", FLEXIBLE_HEADER + b"\0\3abc\1\0\1x"]
    builder = rb.BatchBuilder()
    for number in range(3):
        builder.append(timestamp_ms=number, key=b"k", value=b"v")
    batch = builder.build()
    for magic in (0, 1):
        seeds.append(
            MESSAGE_SET + message_set.down_convert(batch, magic=magic, from_offset=0, max_bytes=len(batch))
        )
    for row in SERVED.values():
        first, last = row.api.versions
        for version in range(first, last + 1):
            cls, flexible = row.api.request, row.api.is_flexible(version)
            name = bytes((row.api.key, version))
            for number in range(SEEDS_EACH):
                out = bytearray(name)
                message = random_message(cls, version, random.Random(f"{row.api.key} {version} {number}"))
                schema.writer(cls, version, flexible)(message, out)
                seeds.append(bytes(out))
            targets[name] = request_target(cls, version, flexible, instrument)
    return targets, seeds


def read_input(targets: dict[bytes, Target], data: bytes) -> None:
    """Let the target that ``data`` names read the rest of it; a name without a target stands for any."""
    name, body = data[:2], data[2:]
    if len(name) < 2:
        return
    target = targets.get(name) or list(targets.values())[int.from_bytes(name, "big") % len(targets)]
    target(body)


def main() -> None:
    atheris: Any = importlib.import_module("atheris")
    for function in (
        schema.read_varint,
        schema.skip_tagged_fields,
        schema.read_message,
        read_client_id,
        message_set.up_convert,
        message_set._messages,
        message_set._message,
        message_set._bytes,
        message_set._decompressed,
        message_set.down_convert,
    ):
        atheris.instrument_func(function)
    targets, seeds = targets_and_seeds(atheris.instrument_func)

    def one_input(data: bytes) -> None:
        read_input(targets, data)

    CASES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stele-fuzz-") as corpus:
        for number, seed in enumerate(seeds):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        given = sys.argv[1:]
        has_inputs = any(not argument.startswith("-") for argument in given)
        options = [f"-artifact_prefix={CASES}/", "-max_len=4096", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, *given, *([] if has_inputs else [corpus])], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
