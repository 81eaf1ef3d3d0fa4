"""How a producer batches, and how hard it tries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, cast

from ..calls import AcksLike, parse_acks
from ..partitioners import Partitioner
from ..wire.compression import Compression
from ..wire.messages import ACKS_ALL

# The broker recognises a repeated batch among this many of the newest of a producer.
IN_FLIGHT_MAX = 5


class ProducerSettings(TypedDict, total=False):
    """What a producer's constructor takes by keyword; ``ProducerOptions`` says what each means."""

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
    """Settings of a producer, checked.

    ``acks`` as in ``Client.produce``. ``idempotent``: a repeated batch is stored
    once (not with acks=0, where nothing is repeated). ``linger_ms`` 0 sends at once
    when nothing is under way and gathers what comes meanwhile into the next batch:
    no delay when idle, large batches under load. ``in_flight_max`` counts batches of
    one partition. ``buffer_bytes_max`` bounds what is accepted and not yet acked; a
    full buffer makes callers wait. ``delivery_timeout_s`` is how long a record is
    tried before it fails, ``request_timeout_s`` how long one attempt may take.
    ``partitioner`` is a name of ``stele.partitioners.PARTITIONERS`` or a callable.
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
                f"in_flight_max is {self.in_flight_max}; an idempotent producer may have {IN_FLIGHT_MAX}, "
                "the number of batches in which a broker recognises a repetition"
            )


def make_options(settings: ProducerSettings) -> ProducerOptions:
    """Raises ValueError for a setting that makes no sense."""
    acks = parse_acks(settings.get("acks", "all"))
    chosen = cast("dict[str, Any]", {"idempotent": acks != 0, **settings, "acks": acks})
    if chosen["idempotent"] and acks == 0:
        raise ValueError("a producer with acks=0 cannot be idempotent: nothing tells it what to repeat")
    return ProducerOptions(**chosen)
