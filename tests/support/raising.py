"""Services of the broker whose calls raise what a test wants.

``raising`` puts a proxy before each service that a listener gets. A test first looks which calls a request makes
(``Faults.calls``), then lets each of them raise each leaf of the tree of errors.
"""

from __future__ import annotations

import errno
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from app import errors
from app.broker.broker import Broker
from app.broker.cluster import SoloCluster
from app.broker.dynamic_configs import DynamicConfigs
from app.broker.entity_configs import GroupConfigs
from app.broker.mirrors import MirrorDefinitions
from app.broker.producing.copies import Copies
from app.broker.quotas.manager import Quotas
from app.broker.reading.keyed_reading import KeyedReader
from app.broker.storage_views import StorageViews
from app.groups.consumer_groups import ConsumerGroups
from app.groups.coordinator import GroupCoordinator
from app.groups.leases.manager import LeaseManager
from app.groups.services import Groups
from app.groups.share_groups import ShareGroups
from app.groups.share_queue import ShareQueue
from app.monitor.sampler import Sampler
from app.monitor.verifications import Verifications
from app.security.acls import Acls
from app.security.authenticator import Authenticator
from app.security.credentials import Credentials
from app.security.service import Security
from app.transactions.atomic_requests import AtomicRequests
from app.transactions.coordinator import TransactionCoordinator
from app.transactions.joint_commits import JointCommits
from app.transactions.services import Transactions
from app.transactions.writes import TransactionWrites

# What a listener calls. Their parts are proxies too; everything else is handed over as it is.
SERVICES = (
    Acls,
    AtomicRequests,
    Authenticator,
    Broker,
    ConsumerGroups,
    Copies,
    Credentials,
    DynamicConfigs,
    GroupConfigs,
    GroupCoordinator,
    Groups,
    JointCommits,
    KeyedReader,
    LeaseManager,
    MirrorDefinitions,
    Quotas,
    Sampler,
    Security,
    ShareGroups,
    ShareQueue,
    SoloCluster,
    StorageViews,
    TransactionCoordinator,
    TransactionWrites,
    Transactions,
    Verifications,
)


@dataclass(slots=True)
class Faults:
    """Which calls were made, and which one raises."""

    calls: dict[str, None] = field(default_factory=dict[str, None])
    call: str = ""
    error: Exception | None = None
    raised: int = 0

    def arm(self, call: str, error: Exception | None) -> None:
        self.call, self.error, self.raised = call, error, 0

    def enter(self, call: str) -> None:
        self.calls[call] = None
        if self.error is not None and call == self.call:
            self.raised += 1
            raise self.error


class _Proxy:
    """Stands for a service; ``isinstance`` takes it for one."""

    def __init__(self, target: Any, faults: Faults, path: str) -> None:
        object.__setattr__(self, "_known", (target, faults, path))

    @property
    def __class__(self) -> type[Any]:
        return cast("type[Any]", type(object.__getattribute__(self, "_known")[0]))

    @__class__.setter
    def __class__(self, kind: type) -> None:
        raise AttributeError(kind)

    def __getattr__(self, name: str) -> Any:
        target, faults, path = object.__getattribute__(self, "_known")
        return _wrapped(getattr(target, name), faults, f"{path}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_known")[0], name, value)


def raising(service: Any, faults: Faults, path: str) -> Any:
    """Return a proxy of ``service``, whose calls ``faults`` knows as ``path.method``."""
    return _Proxy(service, faults, path)


def _wrapped(value: Any, faults: Faults, path: str) -> Any:
    if isinstance(value, SERVICES):
        return _Proxy(value, faults, path)
    if isinstance(value, list | tuple):
        # All services of a broker with several of a kind.
        items = list(cast("Iterable[Any]", value))
        is_of_services = items and isinstance(items[0], SERVICES)
        return [_wrapped(one, faults, path) for one in items] if is_of_services else cast("Any", value)
    if not (inspect.ismethod(value) or inspect.isfunction(value)):
        return value
    method = cast("Callable[..., Any]", value)
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def later(*args: Any, **kwargs: Any) -> Any:
            faults.enter(path)
            return await method(*args, **kwargs)

        return later

    @functools.wraps(method)
    def now(*args: Any, **kwargs: Any) -> Any:
        faults.enter(path)
        return _wrapped(method(*args, **kwargs), faults, path)

    return now


# ── the leaves ──

_BY_TYPE: dict[str, Any] = {
    "str": "orders",
    "str | None": None,
    "int": 1,
    "int | str": 1,
    "int | None": None,
    "float": 1.0,
    "bool": False,
    "Path": Path("/data/orders-0"),
    "bytes": b"orders",
    "OSError": OSError(errno.ENOSPC, "No space left on device"),
    "Sequence[int]": (0,),
    "Sequence[RecordError]": (errors.RecordError(0, "too old"),),
}


def leaves() -> list[type[errors.SteleError]]:
    """Return every class of the tree without a subclass, sorted by name."""
    found: set[type[errors.SteleError]] = set()

    def visit(kind: type[errors.SteleError]) -> None:
        below = [one for one in kind.__subclasses__() if one.__module__.startswith("app.errors")]
        if not below:
            found.add(kind)
        for one in below:
            visit(one)

    visit(errors.SteleError)
    return sorted(found, key=lambda kind: kind.__name__)


def an_error(kind: type[errors.SteleError]) -> errors.SteleError:
    """Return an error of ``kind`` with plausible fields."""
    parameters = inspect.signature(kind).parameters.values()
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for one in parameters:
        if one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        value = _BY_TYPE.get(str(one.annotation), ())
        if one.kind is one.KEYWORD_ONLY:
            named[one.name] = value
        else:
            positional.append(value)
    return kind(*positional, **named)


def pairs(
    calls: Sequence[str], kinds: Sequence[type[errors.SteleError]], *, are_all: bool
) -> Iterator[tuple[str, type[errors.SteleError]]]:
    """Yield which call raises which error: each kind once and each call at least once, or ``are_all``."""
    if are_all:
        yield from itertools.product(calls, kinds)
        return
    for number in range(max(len(calls), len(kinds)) if calls else 0):
        yield calls[number % len(calls)], kinds[number % len(kinds)]
