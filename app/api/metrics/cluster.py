"""Metrics of a cluster: its brokers, the holders of leases, and this broker's use of shared storage."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...broker.broker import Broker
from ...broker.surveys import SurveyNow, Surveys
from ...cluster.group_shards import SHARD_LEASES
from ...storage.engine import SharedStorageCounts


def cluster_metrics(broker: Broker) -> Iterable[Metric]:
    """Read the cluster and the counts of shared storage.

    There is nothing to read if the storage is the broker's own.
    """
    counts, cluster = broker.storage.shared_counts, broker.cluster
    if counts is None:
        return
    yield GaugeMetricFamily(
        "stele_cluster_brokers", "Live brokers, as seen by this one.", value=len(cluster.members)
    )
    held = GaugeMetricFamily(
        "stele_cluster_lease_held", "1 for a lease that this broker has, otherwise 0.", labels=("lease",)
    )
    for name in sorted({*SHARD_LEASES, *cluster.leases}):
        lease = cluster.lease(name)
        held.add_metric((name,), 1 if lease is not None and lease.broker_id == broker.broker_id else 0)
    yield held
    yield GaugeMetricFamily(
        "stele_cluster_heartbeat_age_seconds",
        "Time since this broker's last successful heartbeat began.",
        value=cluster.heartbeat_age_ms / 1000,
    )
    yield from _storage(counts)
    if cluster.surveys is not None:
        yield from _postgres(cluster.surveys)
        yield from _survey(cluster.surveys.last)


def _postgres(surveys: Surveys) -> Iterable[Metric]:
    for name, text, value in (
        (
            "stele_shared_postgres_errors",
            "Calls of this broker that PostgreSQL refused or that failed to reach it.",
            surveys.postgres.errors,
        ),
        (
            "stele_shared_postgres_round_trips",
            "Round trips to PostgreSQL measured by this broker.",
            surveys.postgres.round_trips,
        ),
        ("stele_shared_postgres_round_trip_seconds", "Their time.", surveys.postgres.round_trip_s),
    ):
        yield CounterMetricFamily(name, text, value=value)


def _survey(now: SurveyNow) -> Iterable[Metric]:
    """Report what is the same at every broker, as of the last survey."""
    survey = now.survey
    if survey is not None:
        oldest_ms = survey.merge.oldest_ms
        for name, text, value in (
            (
                "stele_cluster_merge_backlog_partitions",
                "Partitions with bytes to merge.",
                survey.merge.partitions,
            ),
            (
                "stele_cluster_merge_backlog_bytes",
                "Bytes in objects that are not merged yet.",
                survey.merge.bytes,
            ),
            (
                "stele_cluster_merge_backlog_oldest_seconds",
                "Age of the oldest bytes waiting for a merge; 0 if there are none.",
                (oldest_ms or 0) / 1000,
            ),
            (
                "stele_cluster_suspects",
                "Objects that garbage collection has yet to examine.",
                survey.sweep.suspects,
            ),
            (
                "stele_cluster_deletable_objects",
                "Objects without records whose bytes have not been deleted yet.",
                survey.sweep.deletable_objects,
            ),
            ("stele_cluster_metadata_bytes", "Tables and indexes without records.", survey.metadata_bytes),
        ):
            yield GaugeMetricFamily(name, text, value=value)
    number = GaugeMetricFamily("stele_cluster_objects", "Objects with records.", labels=("store",))
    size = GaugeMetricFamily("stele_cluster_object_bytes", "Bytes of these objects.", labels=("store",))
    if now.objects is not None:
        committed = {total.store: total for total in now.objects if total.state == "committed"}
        for store in ("objects", "inline"):
            total = committed.get(store)
            number.add_metric((store,), 0 if total is None else total.count)
            size.add_metric((store,), 0 if total is None else total.bytes)
    yield number
    yield size


def _storage(counts: SharedStorageCounts) -> Iterable[Metric]:
    objects = CounterMetricFamily(
        "stele_shared_objects",
        "Objects that this broker has committed, by store.",
        labels=("store",),
    )
    size = CounterMetricFamily("stele_shared_object_bytes", "Bytes of these objects.", labels=("store",))
    for store, number, size_bytes in (
        ("objects", counts.objects, counts.object_bytes),
        ("inline", counts.inline_objects, counts.inline_bytes),
    ):
        objects.add_metric((store,), number)
        size.add_metric((store,), size_bytes)
    yield objects
    yield size
    yield GaugeMetricFamily(
        "stele_shared_objects_in_flight", "Objects that are not committed yet.", value=counts.in_flight
    )
    yield GaugeMetricFamily(
        "stele_shared_last_commit_age_seconds",
        "Time since this broker committed an object, or started.",
        value=counts.commit_age_ms / 1000,
    )
    yield GaugeMetricFamily(
        "stele_shared_last_upload_age_seconds",
        "Time since this broker stored an object in the object store, or started; 0 without an object store.",
        value=counts.upload_age_ms / 1000,
    )
    yield GaugeMetricFamily(
        "stele_shared_loads_waiting",
        "Reads of the stores that wait for their turn.",
        value=counts.loads_waiting,
    )
    blocks = CounterMetricFamily(
        "stele_shared_cache_blocks",
        "Blocks requested by readers, by cache hit or miss.",
        labels=("outcome",),
    )
    blocks.add_metric(("hit",), counts.cache_hits)
    blocks.add_metric(("miss",), counts.cache_misses)
    yield blocks
    for name, text, value in (
        ("stele_shared_failed_uploads", "Objects that could not be stored in time.", counts.failed_uploads),
        ("stele_shared_commit_retries", "Commits that were retried.", counts.commit_retries),
        (
            "stele_shared_histories",
            "Histories of the database that began while this broker ran.",
            counts.histories,
        ),
        (
            "stele_shared_lost_records",
            "Acknowledged records known to this broker that a promoted or restored database lacks.",
            counts.lost_records,
        ),
        ("stele_shared_merges", "Merges that took effect.", counts.merges),
        ("stele_shared_merged_bytes", "Bytes of objects that merges have written.", counts.merged_bytes),
        (
            "stele_shared_deleted_objects",
            "Objects whose bytes this broker has deleted.",
            counts.deleted_objects,
        ),
        ("stele_shared_loaded_bytes", "Bytes read from the stores for the cache.", counts.loaded_bytes),
        (
            "stele_shared_refused_loads",
            "Reads refused because too many reads of the stores wait.",
            counts.refused_loads,
        ),
        (
            "stele_shared_read_retries",
            "Failed reads of the stores that were retried.",
            counts.read_retries,
        ),
    ):
        yield CounterMetricFamily(name, text, value=value)
