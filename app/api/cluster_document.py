"""The JSON of ``GET /v1/cluster``, and what brokers report about themselves."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Annotated, Any, NotRequired, TypedDict, cast

from ..broker.broker import Broker
from ..broker.counts import Counts as TrafficCounts
from ..broker.surveys import SurveyNow, Surveys
from ..cluster.membership import Member
from ..cluster.survey import SurveyedBroker
from ..monitor.sampler import Sampler, resident_bytes
from .schemas import Shown, one_of

# A host name is shown to users, and part of every heartbeat.
_HOST_NAME = socket.gethostname()[:255]


Counts = Annotated[dict[str, int], Shown(name="Counts")]
_StartedAt = Annotated[
    int, Shown("when it joined, in ms: at its start, or when it came back after it had counted as dead")
]
_Incarnation = Annotated[str, Shown("changes with each start")]


class _Address(TypedDict):
    id: int
    host: str | None
    rack: str | None
    http_port: NotRequired[int]
    binary_port: NotRequired[int]
    kafka_port: NotRequired[int]
    registry_port: NotRequired[int]


class BrokerJson(_Address, total=False):
    started_at: _StartedAt
    incarnation: _Incarnation


class Totals(TypedDict):
    records_in: int
    bytes_in: int
    bytes_out: int


class Endpoint(TypedDict):
    host: str
    port: int


class BrokerProcess(TypedDict):
    host: str
    id: int
    resident_bytes: int


class BrokerRates(TypedDict):
    records_in_per_s: float
    bytes_in_per_s: float
    bytes_out_per_s: float


class SurveyedBrokerJson(_Address):
    started_at: _StartedAt
    incarnation: _Incarnation
    status: Annotated[str, one_of("BrokerStatus", "live", "dead")]
    heartbeat_age_ms: int
    endpoints: Annotated[dict[str, Endpoint], Shown(name="Endpoints")]
    version: str | None
    process: BrokerProcess | None
    rates: BrokerRates | None
    totals: Totals | None
    connections: Counts | None


class StoredObjects(TypedDict):
    store: Annotated[str, one_of("ObjectStore", "objects", "inline")]
    state: Annotated[str, one_of("ObjectState", "committed", "dead", "fenced")]
    count: int
    bytes: int


class MergeBacklog(TypedDict):
    partitions: int
    bytes: int
    oldest_ms: int | None


class SweepBacklog(TypedDict):
    suspects: int
    deletable_objects: int
    deletable_bytes: int
    silent_uploaders: int


class PostgresTimes(TypedDict):
    errors: int
    round_trips: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class Survey(TypedDict):
    age_ms: Annotated[int | None, Shown("null until the first survey has ended")]
    problem: Annotated[str | None, Shown("why there is no younger survey")]
    brokers: list[SurveyedBrokerJson] | None
    log_bytes: int | None
    metadata_bytes: int | None
    objects: list[StoredObjects] | None
    objects_age_ms: int | None
    merge_backlog: MergeBacklog | None
    sweep_backlog: SweepBacklog | None
    postgres: PostgresTimes


def broker_report(broker: Broker, sampler: Sampler, version: str) -> Mapping[str, Any]:
    """Return what a survey at any broker shows about this one: a few hundred bytes of JSON."""
    pair = sampler.history.rates()
    rates: dict[str, float] | None = None
    if pair is not None:
        old, new = pair
        over_s = new.ms_since(old) / 1000
        rates = {
            "records_in_per_s": round((new.records_in - old.records_in) / over_s, 1),
            "bytes_in_per_s": round((new.bytes_in - old.bytes_in) / over_s, 1),
            "bytes_out_per_s": round((new.bytes_out - old.bytes_out) / over_s, 1),
        }
    return {
        "version": version,
        "process": {"host": _HOST_NAME, "id": os.getpid(), "resident_bytes": resident_bytes()},
        "rates": rates,
        "totals": totals(broker.counts),
        "connections": {listener.name: listener.traffic().connections for listener in sampler.listeners},
    }


def totals(counts: TrafficCounts) -> Totals:
    return {
        "records_in": counts.appended_records,
        "bytes_in": counts.appended_bytes,
        "bytes_out": counts.fetched_bytes,
    }


def own_document(broker: Broker) -> BrokerJson:
    """Describe a broker on its own."""
    document = {
        "id": broker.broker_id,
        "host": broker.settings.advertised_host or broker.settings.host,
        "rack": broker.settings.broker_rack,
        **{f"{listener}_port": endpoint.port for listener, endpoint in broker.endpoints.items()},
    }
    return cast("BrokerJson", document)


def member_document(member: Member) -> BrokerJson:
    """Describe a live broker to clients."""
    hosts = [endpoint.host for endpoint in member.endpoints.values()]
    document = {
        "id": member.broker_id,
        "host": hosts[0] if hosts else None,
        "rack": member.rack,
        "started_at": member.started_at_ms,
        "incarnation": str(member.incarnation),
        **{f"{listener}_port": endpoint.port for listener, endpoint in member.endpoints.items()},
    }
    return cast("BrokerJson", document)


def surveyed_document(surveyed: SurveyedBroker) -> SurveyedBrokerJson:
    """Describe a broker to operators: what the database knows about it, and what it said last."""
    report = surveyed.report
    document: dict[str, Any] = {
        **member_document(surveyed.member),
        "status": "live" if surveyed.is_live else "dead",
        "heartbeat_age_ms": surveyed.heartbeat_age_ms,
        "endpoints": {
            listener: {"host": endpoint.host, "port": endpoint.port}
            for listener, endpoint in surveyed.member.endpoints.items()
        },
        # A broker of an older release reports nothing.
        **{name: report.get(name) for name in ("version", "process", "rates", "totals", "connections")},
    }
    return cast("SurveyedBrokerJson", document)


def survey_document(surveys: Surveys, now: SurveyNow) -> Survey:
    """Describe the brokers and the storage of a cluster."""
    survey, objects = now.survey, now.objects
    times = surveys.postgres.recent()
    return {
        "age_ms": now.age_ms,
        "problem": now.problem,
        "brokers": None if survey is None else [surveyed_document(broker) for broker in survey.brokers],
        "log_bytes": None if survey is None else survey.log_bytes,
        "metadata_bytes": None if survey is None else survey.metadata_bytes,
        "objects": None
        if objects is None
        else [
            {"store": total.store, "state": total.state, "count": total.count, "bytes": total.bytes}
            for total in objects
        ],
        "objects_age_ms": now.objects_age_ms,
        "merge_backlog": None
        if survey is None
        else {
            "partitions": survey.merge.partitions,
            "bytes": survey.merge.bytes,
            "oldest_ms": survey.merge.oldest_ms,
        },
        "sweep_backlog": None
        if survey is None
        else {
            "suspects": survey.sweep.suspects,
            "deletable_objects": survey.sweep.deletable_objects,
            "deletable_bytes": survey.sweep.deletable_bytes,
            "silent_uploaders": survey.sweep.silent_uploaders,
        },
        "postgres": {
            "errors": surveys.postgres.errors,
            "round_trips": surveys.postgres.round_trips,
            "p50_ms": None if times is None else round(times.p50_ms, 3),
            "p99_ms": None if times is None else round(times.p99_ms, 3),
            "max_ms": None if times is None else round(times.max_ms, 3),
        },
    }
