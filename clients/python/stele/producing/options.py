"""Options of a producer: batching, timeouts and retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, cast

from ..calls import AcksLike, parse_acks
from ..partitioners import Partitioner
from ..wire.compression import Compression
from ..wire.messages import ACKS_ALL

# The broker recognises a repeated batch among this many newest batches of a producer.
IN_FLIGHT_MAX = 5


class ProducerSettings(TypedDict, total=False):
    """Keyword arguments of a producer's constructor; see ``ProducerOptions``."""

    acks: AcksLike
    idempotent: bool
    linger_ms: float
    batch_bytes_max: int
    batch_records_max: int
    in_flight_max: int
    buffer_bytes_max: int
    delivery_timeout_s: float
    request_timeout_s: float
    compression: Compression
    partitioner: str | Partitioner


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """Validated settings of a producer.

    - ``acks``: as in ``Client.produce``.
    - ``idempotent``: store a batch once even if it is sent again. Not with acks=0,
      where nothing is sent again.
    - ``linger_ms``: how long to wait for more records before a batch is sent. With 0 a
      batch is sent at once if none is in flight; otherwise records gather until then.
    - ``batch_bytes_max``, ``batch_records_max``: the size at which a batch is closed.
    - ``in_flight_max``: the most batches in flight per partition.
    - ``buffer_bytes_max``: the most bytes accepted and not yet acked. Callers wait
      while the buffer is full.
    - ``delivery_timeout_s``: how long a record is retried before it fails.
    - ``request_timeout_s``: the most time per attempt.
    - ``compression``: the codec of batches, over the binary protocol only.
    - ``partitioner``: a name in ``stele.partitioners.PARTITIONERS``, or a callable.

    Raises:
        ValueError: a setting has an invalid value.
    """

    acks: int = ACKS_ALL
    idempotent: bool = True
    linger_ms: float = 0.0
    batch_bytes_max: int = 256 * 1024
    batch_records_max: int = 10_000
    in_flight_max: int = IN_FLIGHT_MAX
    buffer_bytes_max: int = 32 * 1024 * 1024
    delivery_timeout_s: float = 120.0
    request_timeout_s: float = 30.0
    compression: Compression = Compression.NONE
    partitioner: str | Partitioner = "murmur2"

    def __post_init__(self) -> None:
        for name in ("batch_bytes_max", "batch_records_max", "in_flight_max", "buffer_bytes_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.linger_ms < 0:
            raise ValueError(f"linger_ms is {self.linger_ms}; it must not be negative")
        if self.delivery_timeout_s <= 0 or self.request_timeout_s <= 0:
            raise ValueError("delivery_timeout_s and request_timeout_s must be greater than 0")
        if self.idempotent and self.in_flight_max > IN_FLIGHT_MAX:
            raise ValueError(
                f"in_flight_max is {self.in_flight_max}; an idempotent producer may have at most "
                f"{IN_FLIGHT_MAX}, the number of batches that a broker remembers"
            )


def make_options(settings: ProducerSettings) -> ProducerOptions:
    """Validate keyword arguments. Raises ValueError for an invalid setting."""
    acks = parse_acks(settings.get("acks", "all"))
    chosen = cast("dict[str, Any]", {"idempotent": acks != 0, **settings, "acks": acks})
    if chosen["idempotent"] and acks == 0:
        raise ValueError(
            "a producer with acks=0 cannot be idempotent, because it gets no acks; set idempotent=False"
        )
    return ProducerOptions(**chosen)
