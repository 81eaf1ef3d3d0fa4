"""Random bytes from clients that have not logged in, at each listener: nothing is kept, reached or broken.

``make torture`` plays ``STELE_TORTURE_INPUTS`` connections (10,000,000), ``make test`` some thousand.
"""

from __future__ import annotations

import asyncio
import os
import random
import struct
from pathlib import Path

import pytest
from stele.wire.kafka.api_versions import ApiVersionsRequest

from app.tcp.binary.login import LOGIN_FRAME_BYTES_MAX
from app.tcp.kafka.sasl_session import LOGIN_REQUEST_BYTES_MAX, LOGIN_REQUESTS_MAX
from tests.support.before_login import GOOD_CLIENT, Wire, attack, targets
from tests.support.certificates import Authority
from tests.support.hostile_bytes import Source, binary_source, http_source, kafka_source, tls_source
from tests.support.kafka_peer import request_frame
from tests.support.simulated_time import run_simulated, simulated

SOURCES = {"kafka": kafka_source, "binary": binary_source, "http": http_source, "tls": tls_source}
INPUTS = 2000
TORTURE_TESTS = 20
TORTURE_INPUTS = int(os.environ.get("STELE_TORTURE_INPUTS", "10000000"))
# Of the process, over all inputs of a test: what was kept of each would be more.
MEMORY_GROWTH_MAX_KB = 64 * 1024


def resident_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def play(path: Path, listener: str, seeds: range) -> None:
    authority = Authority(path)

    async def main() -> None:
        source: Source = SOURCES[listener]()
        async with targets(path, authority) as all_targets:
            target = all_targets[listener]
            await target.check_good_client()
            answered = 0
            # What is made once, such as decoders, is not counted.
            warm = min(1000, len(seeds) // 2)
            before_kb = 0
            for number, seed in enumerate(seeds):
                if number == warm:
                    before_kb = resident_kb()
                try:
                    answered += bool(await attack(target, source, random.Random(f"{listener} {seed}")))
                except Exception as error:
                    raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
            assert resident_kb() - before_kb < MEMORY_GROWTH_MAX_KB
            # The inputs are neither all refused at once nor all understood.
            assert len(seeds) * 0.05 < answered
            await target.check_good_client()

    run_simulated(main, random.Random(seeds.start))


@pytest.mark.parametrize("listener", SOURCES)
def test_bytes_before_a_login_reach_nothing(listener: str, tmp_path: Path) -> None:
    play(tmp_path, listener, range(INPUTS))


@pytest.mark.parametrize("count", [LOGIN_REQUESTS_MAX, LOGIN_REQUESTS_MAX + 1])
@simulated
async def test_a_client_of_the_kafka_protocol_may_send_few_requests_before_its_login(
    count: int, tmp_path: Path
) -> None:
    """Otherwise responses to ApiVersions that it does not read would fill the memory of the broker."""
    async with targets(tmp_path, Authority(tmp_path)) as all_targets:
        wire = Wire(GOOD_CLIENT)
        connection = all_targets["kafka"].connect(GOOD_CLIENT)
        connection.connection_made(wire)
        connection.data_received(request_frame(ApiVersionsRequest(), 0) * count)
        # Some may wait for a turn.
        await asyncio.sleep(1)
        all_targets["kafka"].check_answer(bytes(wire.written))
        assert wire.is_over is (count > LOGIN_REQUESTS_MAX)
        connection.connection_lost(None)


@pytest.mark.parametrize(
    ("listener", "head"),
    [
        ("kafka", struct.pack(">i", LOGIN_REQUEST_BYTES_MAX + 1)),
        ("binary", struct.pack(">IB", LOGIN_FRAME_BYTES_MAX + 1, 3)),
    ],
)
@simulated
async def test_a_request_that_is_too_large_before_a_login_ends_the_connection(
    listener: str, head: bytes, tmp_path: Path
) -> None:
    """Limits of those that are logged in are hundreds of times larger."""
    async with targets(tmp_path, Authority(tmp_path)) as all_targets:
        target, wire = all_targets[listener], Wire(GOOD_CLIENT)
        connection = target.connect(GOOD_CLIENT)
        connection.connection_made(wire)
        connection.data_received(head)
        assert wire.is_over
        for _ in range(20):
            connection.data_received(b"x" * 16_384)
        assert target.held_bytes(connection) <= len(head)
        connection.connection_lost(None)


@pytest.mark.torture
@pytest.mark.parametrize("part", range(TORTURE_TESTS))
@pytest.mark.parametrize("listener", SOURCES)
def test_millions_of_inputs_before_a_login_reach_nothing(listener: str, part: int, tmp_path: Path) -> None:
    size = TORTURE_INPUTS // len(SOURCES) // TORTURE_TESTS
    play(tmp_path, listener, range(INPUTS + part * size, INPUTS + (part + 1) * size))
