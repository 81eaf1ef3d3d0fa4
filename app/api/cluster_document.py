"""The JSON of ``GET /v1/cluster``, and what brokers report about themselves."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any

from ..broker.broker import Broker
from ..broker.surveys import SurveyNow, Surveys
from ..cluster.membership import Member
from ..cluster.survey import SurveyedBroker
from ..monitor.sampler import Sampler, resident_bytes

# A host name is shown to users, and part of every heartbeat.
_HOST_NAME = socket.gethostname()[:255]


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
    counts = broker.counts
    return {
        "version": version,
        "process": {"host": _HOST_NAME, "id": os.getpid(), "resident_bytes": resident_bytes()},
        "rates": rates,
        "totals": {
            "records_in": counts.appended_records,
            "bytes_in": counts.appended_bytes,
            "bytes_out": counts.fetched_bytes,
        },
        "connections": {listener.name: listener.traffic().connections for listener in sampler.listeners},
    }


def own_document(broker: Broker) -> dict[str, Any]:
    """Describe a broker on its own."""
    return {
        "id": broker.broker_id,
        "host": broker.settings.advertised_host or broker.settings.host,
        "rack": broker.settings.broker_rack,
        **{f"{listener}_port": endpoint.port for listener, endpoint in broker.endpoints.items()},
    }


def member_document(member: Member) -> dict[str, Any]:
    """Describe a live broker to clients."""
    hosts = [endpoint.host for endpoint in member.endpoints.values()]
    return {
        "id": member.broker_id,
        "host": hosts[0] if hosts else None,
        "rack": member.rack,
        "started_at": member.started_at_ms,
        "incarnation": str(member.incarnation),
        **{f"{listener}_port": endpoint.port for listener, endpoint in member.endpoints.items()},
    }


def surveyed_document(surveyed: SurveyedBroker) -> dict[str, Any]:
    """Describe a broker to operators: what the database knows about it, and what it said last."""
    report = surveyed.report
    return {
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


def survey_document(surveys: Surveys, now: SurveyNow) -> dict[str, Any]:
    """Describe the brokers and the storage of a cluster."""
    survey, objects = now.survey, now.objects
    times = surveys.postgres.recent()
    return {
        "age_ms": now.age_ms,
        "problem": now.problem,
        "brokers": None if survey is None else [surveyed_document(one) for one in survey.brokers],
        "log_bytes": None if survey is None else survey.log_bytes,
        "metadata_bytes": None if survey is None else survey.metadata_bytes,
        "objects": None
        if objects is None
        else [
            {"store": one.store, "state": one.state, "count": one.count, "bytes": one.bytes}
            for one in objects
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
