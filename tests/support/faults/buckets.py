"""Stores for a replica: an S3 server that fails and is killed, or a directory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from load.server_start import S3Server
from tests.support.s3_servers import mortal_seaweedfs, mortal_versitygw

from .links import LinkLoop
from .store_proxy import StoreFault, StoreMood, StoreProxy

_FAULTS = (
    StoreFault.ERROR_500,
    StoreFault.ERROR_503,
    StoreFault.ERROR_429,
    StoreFault.SLOW,
    StoreFault.LOST_ANSWER,
    StoreFault.LATE,
    StoreFault.CUT_ANSWER,
)
_SERVERS: Mapping[str, Callable[[], AbstractContextManager[tuple[str, S3Server]]]] = {
    "seaweedfs": mortal_seaweedfs,
    "versitygw": mortal_versitygw,
}
KINDS: tuple[str, ...] = (*_SERVERS, "file")


@dataclass
class Bucket:
    """A bucket at ``url``; a directory has neither ``proxy`` nor ``server``, and never fails."""

    url: str
    proxy: StoreProxy | None = None
    server: S3Server | None = None

    @property
    def url_of_broker(self) -> str:
        """The URL behind the proxy."""
        if self.proxy is None:
            return self.url
        address = urlsplit(self.url)
        return f"s3://{address.netloc}{address.path}?endpoint=http://127.0.0.1:{self.proxy.port}"

    def fail(self, probability: float) -> None:
        """Fail requests of brokers; with 0, none any more, and the server runs."""
        if self.proxy is not None:
            self.proxy.mood = StoreMood(_FAULTS, probability, delay_s=2.0) if probability else StoreMood()
        if self.server is not None and not probability and not self.server.is_running:
            self.server.start()

    def answer_nothing(self) -> None:
        if self.proxy is not None:
            self.proxy.mood = StoreMood((StoreFault.NO_ANSWER,), 1.0)


@contextmanager
def bucket(kind: str, path: Path, seed: int) -> Generator[Bucket]:
    """Yield a store of one of ``KINDS``."""
    if kind == "file":
        (path / "bucket").mkdir()
        yield Bucket(f"file://{path / 'bucket'}")
        return
    with _SERVERS[kind]() as (url, server), LinkLoop() as loop:
        address = urlsplit(server.endpoint)
        assert address.hostname is not None
        assert address.port is not None
        proxy = StoreProxy(loop, "broker-store", (address.hostname, address.port), Random(seed))
        yield Bucket(url, proxy, server)
