"""Keys land where other systems' producers put them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stele.wire.partitioner import fnv1a_32, fnv1a_32_all, murmur2, partition_for_key


# Apache Kafka, clients/src/test/java/org/apache/kafka/common/utils/UtilsTest.java (signed there).
@pytest.mark.parametrize(
    ("text", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_apache_kafka(text: bytes, signed: int) -> None:
    assert murmur2(text) == signed & 0xFFFFFFFF
    assert partition_for_key(text, 7) == (signed & 0x7FFFFFFF) % 7


# The FNV reference's test suite.
@pytest.mark.parametrize(("text", "value"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_fnv1a_is_that_of_the_reference(text: bytes, value: int) -> None:
    assert fnv1a_32(text) == value
    assert partition_for_key(text, 5, hash_name="fnv1a") == value % 5


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_many_keys_at_once_have_the_hash_of_each(keys: list[bytes]) -> None:
    assert list(fnv1a_32_all(keys)) == list(map(fnv1a_32, keys))


@given(st.binary(max_size=100), st.integers(1, 10_000))
def test_a_partition_always_exists(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions
    assert 0 <= partition_for_key(key, partitions, hash_name="fnv1a") < partitions
