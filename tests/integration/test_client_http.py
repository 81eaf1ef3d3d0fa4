"""The blocking HTTP transport of the client."""

from __future__ import annotations

import threading
from typing import Any

import httpcore
import pytest
from httpcore._backends.sync import SyncBackend
from stele import Client
from stele.broker_process import BrokerProcess


def test_a_connection_that_opens_while_the_client_is_closed_is_closed(
    stele_broker_session: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, go_on = threading.Event(), threading.Event()
    streams: list[httpcore.NetworkStream] = []
    connect = SyncBackend.connect_tcp

    def connect_slowly(*given: Any, **options: Any) -> httpcore.NetworkStream:
        streams.append(connect(*given, **options))
        opened.set()
        assert go_on.wait(60)
        return streams[-1]

    monkeypatch.setattr(SyncBackend, "connect_tcp", connect_slowly)
    client = Client(stele_broker_session.http_url)
    call = threading.Thread(target=client.topics)
    call.start()
    assert opened.wait(60)
    client.close()
    go_on.set()
    call.join(60)
    assert [stream.get_extra_info("socket").fileno() for stream in streams] == [-1]
