"""``stele top``: live rates, connections, syncs and group lag in the terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

import click
import httpx
import msgspec
from msgspec import Struct

from ..config import shown_url
from ..transport.http_common import login_header
from ..transport.tls import client_context
from .common import config_of, http_url, url_option
from .terminal.results import format_option, print_result

_GROUPS_MAX = 10_000
_TIMEOUT_S = 10.0
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


# ── the fields of the responses that are shown ──


class _Health(Struct):
    status: str
    reason: str | None


class _Rates(Struct):
    records_in_per_s: float | None = None
    bytes_in_per_s: float | None = None
    bytes_out_per_s: float | None = None
    syncs_per_s: float | None = None


class _Listener(Struct):
    name: str
    connections: int
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None


class _Disk(Struct):
    log_bytes: int | None
    free_bytes: int | None
    total_bytes: int | None


class _Syncs(Struct):
    p50_ms: float | None
    p99_ms: float | None


class _Process(Struct):
    resident_bytes: int


class _Overview(Struct):
    version: str
    uptime_ms: int
    health: _Health
    topics: int
    partitions: int
    groups: int
    rates: _Rates | None
    listeners: list[_Listener]
    disk: _Disk
    syncs: _Syncs
    process: _Process


class _SurveyedBroker(Struct):
    id: int
    status: str
    heartbeat_age_ms: int
    version: str | None = None
    rates: _Rates | None = None
    connections: dict[str, int] | None = None


class _MergeBacklog(Struct):
    bytes: int


class _Survey(Struct):
    brokers: list[_SurveyedBroker] | None = None
    merge_backlog: _MergeBacklog | None = None
    problem: str | None = None


class _Lease(Struct):
    broker_id: int


class _Cluster(Struct):
    broker_id: int
    # A broker on its own has none.
    survey: _Survey | None = None
    leases: dict[str, _Lease] = {}


class _Group(Struct):
    group: str
    state: str
    members: int | None
    lag: int | None


class _Groups(Struct):
    groups: list[_Group]
    total: int


class _State(Struct):
    overview: _Overview
    cluster: _Cluster
    groups: _Groups


_T = TypeVar("_T", bound=Struct)
# There is no response, or it is not that of a Stele broker.
_FAILURES = (httpx.HTTPError, msgspec.DecodeError)


@click.command()
@url_option
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    metavar="SECONDS",
    default=2.0,
    show_default=True,
    help="Time between updates.",
)
@click.option(
    "--once",
    is_flag=True,
    help="Print once and exit. Implied by --format json, and when the output is not a terminal.",
)
@format_option
def top(url: str | None, interval: float, once: bool, form: str) -> None:
    """Show live rates, connections, syncs and group lag of a broker.

    If the broker is one of several, the rates of all of them are shown, too.

    Press ctrl-c to exit.
    """
    address = http_url(url)
    try:
        endpoint = config_of(address).endpoint
        client = httpx.Client(
            headers=login_header(endpoint),
            timeout=_TIMEOUT_S,
            verify=client_context(endpoint) or False,
        )
    except (httpx.InvalidURL, ValueError) as error:
        shown = shown_url(address)
        raise click.UsageError(f"{shown} is not a valid URL ({error}); pass http://HOST:8080") from error
    with client as http:
        source = _Source(http, [one.http_url for one in endpoint.all])
        if once or form == "json" or not sys.stdout.isatty():
            try:
                state = source.state()
            except _FAILURES as error:
                raise click.ClickException(_reason(source.url, error)) from error
            print_result(form, state, _lines(state, rows=_GROUPS_MAX))
            return
        with _screen():
            while True:
                _draw(source)
                time.sleep(interval)


class _Source:
    """The brokers of a URL.

    A report comes from one of them: the last one that answered, or the next that does.
    """

    def __init__(self, http: httpx.Client, urls: list[str]) -> None:
        self._http = http
        self._urls = urls

    @property
    def url(self) -> str:
        return shown_url(self._urls[0])

    def state(self) -> _State:
        """Raises one of ``_FAILURES``: that of the last broker, if none answers."""
        for left in reversed(range(len(self._urls))):
            try:
                return _state(self._http, self._urls[0])
            except httpx.TransportError:
                if not left:
                    raise
                self._urls.append(self._urls.pop(0))
        raise AssertionError("a URL names a broker")


@contextmanager
def _screen() -> Generator[None]:
    """Switch to the alternate screen of the terminal, and back at the end."""
    sys.stdout.write(_ENTER)
    try:
        yield
    except KeyboardInterrupt:
        # This is how a user exits.
        pass
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _reason(address: str, error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return (
            f"{address} returned status {error.response.status_code}; is it a Stele broker of this version?"
        )
    if isinstance(error, msgspec.DecodeError):
        return f"{address} did not answer like a Stele broker of this version: {error}"
    return f"{address} cannot be reached: {error}"


def _draw(source: _Source) -> None:
    width, height = shutil.get_terminal_size()
    try:
        lines = _lines(source.state(), rows=height)
    except _FAILURES as error:
        lines = [f"stele top · {time.strftime('%H:%M:%S')}", "", _reason(source.url, error), "Retrying."]
    cut = [line[:width] for line in lines[: height - 1]]
    sys.stdout.write(_HOME + "".join(f"{line}{_END_OF_LINE}\r\n" for line in cut) + _END_OF_SCREEN)
    sys.stdout.flush()


def _get(http: httpx.Client, url: str, kind: type[_T]) -> _T:
    """Fetch a document as ``kind``. Raises one of ``_FAILURES``."""
    response = http.get(url)
    response.raise_for_status()
    return msgspec.json.decode(response.content, type=kind)


def _state(http: httpx.Client, url: str) -> _State:
    return _State(
        overview=_get(http, f"{url}/v1/overview", _Overview),
        cluster=_get(http, f"{url}/v1/cluster", _Cluster),
        groups=_get(http, f"{url}/v1/groups?limit={_GROUPS_MAX}", _Groups),
    )


def _lines(state: _State, *, rows: int) -> list[str]:
    now, cluster, listed = state.overview, state.cluster, state.groups
    rates, syncs, disk = now.rates or _Rates(), now.syncs, now.disk
    lines = [
        *_cluster_lines(cluster),
        f"stele {now.version} · {now.health.status} · up {_duration(now.uptime_ms)} · "
        f"{time.strftime('%H:%M:%S')}",
    ]
    if now.health.reason:
        lines.append(now.health.reason)
    lines += [
        f"in {_brief(rates.records_in_per_s)} records/s, {_bytes(rates.bytes_in_per_s)}/s · "
        f"out {_bytes(rates.bytes_out_per_s)}/s · "
        f"syncs {_brief(rates.syncs_per_s)}/s, median {_ms(syncs.p50_ms)}, p99 {_ms(syncs.p99_ms)}",
        f"{now.topics:,} topics, {now.partitions:,} partitions, {now.groups:,} groups · "
        f"log {_bytes(disk.log_bytes)}, free {_bytes(disk.free_bytes)} of {_bytes(disk.total_bytes)} · "
        f"memory {_bytes(now.process.resident_bytes)}",
        "",
        f"{'PROTOCOL  ':<10}{'CONNECTIONS':>12}{'IN/S':>14}{'OUT/S':>14}",
    ]
    lines += [
        f"{listener.name:<10}{listener.connections:>12,}{_bytes(listener.bytes_in_per_s):>14}"
        f"{_bytes(listener.bytes_out_per_s):>14}"
        for listener in now.listeners
    ]
    # The largest lag first; a group that was not sampled has no lag.
    groups = sorted(listed.groups, key=lambda group: (-(group.lag or 0), group.group))
    shown = [(_text(group.group), group) for group in groups[:rows]]
    width = max([len(name) for name, _ in shown] + [10])
    lines += ["", f"{'GROUP':<{width}}  {'STATE':<20}{'MEMBERS':>8}{'LAG':>14}"]
    if listed.total > len(groups):
        lines.append(f"(only the first {len(groups):,} of {listed.total:,} groups, by name)")
    lines += [
        f"{name:<{width}}  {group.state:<20}{_count(group.members):>8}{_count(group.lag):>14}"
        for name, group in shown
    ]
    return lines


def _cluster_lines(cluster: _Cluster) -> list[str]:
    """Return the brokers of a cluster and their sum; nothing for a broker on its own."""
    survey = cluster.survey
    if survey is None:
        return []
    brokers = survey.brokers or []
    rows: list[tuple[str, str, int | None, _Rates, int]] = []
    for broker in brokers:
        is_live = broker.status == "live"
        leases = sum(lease.broker_id == broker.id for lease in cluster.leases.values())
        connections = sum((broker.connections or {}).values()) if is_live else None
        rates = (broker.rates if is_live else None) or _Rates()
        state = broker.status if is_live else f"{broker.status} {_duration(broker.heartbeat_age_ms)}"
        rows.append((str(broker.id), state, connections, rates, leases))
    rates = [row[3] for row in rows]
    total = _Rates(
        records_in_per_s=sum(rate.records_in_per_s or 0 for rate in rates),
        bytes_in_per_s=sum(rate.bytes_in_per_s or 0 for rate in rates),
        bytes_out_per_s=sum(rate.bytes_out_per_s or 0 for rate in rates),
    )
    rows.append(("all", "", sum(row[2] or 0 for row in rows), total, len(cluster.leases)))
    merge = "" if survey.merge_backlog is None else f" · {_bytes(survey.merge_backlog.bytes)} to merge"
    return [
        *([f"cluster: {survey.problem}"] if survey.problem else []),
        f"{'BROKER':<8}{'STATE':<14}{'CONNECTIONS':>12}{'RECORDS/S':>12}{'IN/S':>14}{'OUT/S':>14}{'LEASES':>8}{merge}",
        *(
            f"{name:<8}{state:<14}{_count(connections):>12}{_brief(rate.records_in_per_s):>12}"
            f"{_bytes(rate.bytes_in_per_s):>14}{_bytes(rate.bytes_out_per_s):>14}{leases:>8}"
            for name, state, connections, rate, leases in rows
        ),
        "",
        f"broker {cluster.broker_id}:",
    ]


def _text(name: str) -> str:
    """Escape a name that could send control characters to the terminal."""
    return name if name.isprintable() else name.encode("unicode_escape").decode()


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _scaled(number: float | None, step: int, units: tuple[str, ...]) -> str:
    if number is None:
        return "-"
    index = 0
    while abs(number) >= step and index < len(units) - 1:
        number /= step
        index += 1
    return f"{number:.0f}{units[index]}" if index == 0 else f"{number:.1f}{units[index]}"


def _brief(number: float | None) -> str:
    return _scaled(number, 1000, ("", "k", "M", "G"))


def _bytes(number: float | None) -> str:
    return _scaled(number, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))


def _ms(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f} ms"


def _duration(ms: int) -> str:
    for name, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if ms >= size:
            return f"{ms / size:.1f} {name}"
    return f"{ms // 1000} s"
