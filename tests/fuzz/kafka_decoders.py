"""Coverage-guided fuzzing of what reads bytes behind the Kafka listener, with atheris (libFuzzer).

    make fuzz                      for a minute
    make fuzz FUZZ_SECONDS=3600    for an hour
    python -m tests.fuzz.kafka_decoders FILE    the input of a finding, once more

An input's first two bytes choose what reads the rest: the decoder of a request in one
version, the request header, or the message sets of old. A finding is any error but
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

from app.tcp.kafka import message_set
from app.tcp.kafka.dispatch import SERVED
from app.tcp.kafka.headers import read_client_id
from tests.support.random_messages import leaves, random_message

SEEDS_EACH = 2
# Where libFuzzer leaves the input of a finding.
FINDINGS = Path(".fuzz")

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


def targets_and_seeds(instrument: Callable[[Any], Any]) -> tuple[list[Target], list[bytes]]:
    targets: list[Target] = [header_target(False), header_target(True), message_set_target]
    seeds = [_input(0, b"\0\3abc"), _input(1, b"\0\3abc\1\0\1x")]
    builder = rb.BatchBuilder()
    for number in range(3):
        builder.append(timestamp_ms=number, key=b"k", value=b"v")
    batch = builder.build()
    for magic in (0, 1):
        seeds.append(
            _input(2, message_set.down_convert(batch, magic=magic, from_offset=0, max_bytes=len(batch)))
        )
    for row in SERVED.values():
        first, last = row.api.versions
        for version in range(first, last + 1):
            cls, flexible = row.api.request, row.api.is_flexible(version)
            for number in range(SEEDS_EACH):
                out = bytearray()
                message = random_message(cls, version, random.Random(f"{row.api.key} {version} {number}"))
                schema.writer(cls, version, flexible)(message, out)
                seeds.append(_input(len(targets), bytes(out)))
            targets.append(request_target(cls, version, flexible, instrument))
    return targets, seeds


def _input(target: int, body: bytes) -> bytes:
    return target.to_bytes(2, "big") + body


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
        if len(data) >= 2:
            targets[int.from_bytes(data[:2], "big") % len(targets)](data[2:])

    FINDINGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stele-fuzz-") as corpus:
        for number, seed in enumerate(seeds):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        given = sys.argv[1:]
        has_inputs = any(not argument.startswith("-") for argument in given)
        options = [f"-artifact_prefix={FINDINGS}/", "-max_len=4096", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *options, *given, *([] if has_inputs else [corpus])], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
