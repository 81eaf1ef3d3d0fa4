"""What ``bench_lone_sync`` measures."""

from __future__ import annotations

from load.bench_lone_sync import lone_exchange


def test_it_is_the_produce_with_acks_all_of_which_one_is_in_flight() -> None:
    exchange = lone_exchange()
    assert exchange.what.endswith("acks=all, one at a time")
    assert (exchange.in_flight, exchange.connections, exchange.listener) == (1, 1, "kafka")
