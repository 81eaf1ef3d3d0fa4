"""Export the connections, the handshakes and the certificates of the listeners."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from ...broker.listeners import ListenerView

_PROTOCOL = ("protocol",)


def listener_metrics(listeners: Sequence[ListenerView]) -> Iterable[Metric]:
    """Read the totals of each listener, which are plain integers."""
    connections = GaugeMetricFamily("stele_listener_connections", "Open connections.", labels=_PROTOCOL)
    opened = CounterMetricFamily(
        "stele_listener_connections_opened", "Connections accepted.", labels=_PROTOCOL
    )
    refused = CounterMetricFamily(
        "stele_listener_connections_refused",
        "Connections refused because of connections_max, connections_per_address_max or the limit of open files.",
        labels=_PROTOCOL,
    )
    accept_failures = CounterMetricFamily(
        "stele_listener_accept_failures",
        "Failed accepts because the process or the system was out of file descriptors.",
        labels=_PROTOCOL,
    )
    bytes_in = CounterMetricFamily(
        "stele_listener_bytes_in", "Bytes received; over HTTP, of request bodies.", labels=_PROTOCOL
    )
    bytes_out = CounterMetricFamily(
        "stele_listener_bytes_out", "Bytes sent; over HTTP, of response bodies.", labels=_PROTOCOL
    )
    for listener in listeners:
        traffic = listener.traffic()
        connections.add_metric((listener.name,), traffic.connections)
        opened.add_metric((listener.name,), traffic.connections_opened)
        refused.add_metric((listener.name,), traffic.connections_refused)
        accept_failures.add_metric((listener.name,), traffic.accept_failures)
        bytes_in.add_metric((listener.name,), traffic.bytes_in)
        bytes_out.add_metric((listener.name,), traffic.bytes_out)
    return (connections, opened, refused, accept_failures, bytes_in, bytes_out, *_tls_metrics(listeners))


def _tls_metrics(listeners: Sequence[ListenerView]) -> Iterable[Metric]:
    """Series of the listeners with TLS; none if there are none."""
    pending = GaugeMetricFamily(
        "stele_tls_handshakes_pending", "TLS handshakes in progress.", labels=_PROTOCOL
    )
    completed = CounterMetricFamily("stele_tls_handshakes", "TLS handshakes completed.", labels=_PROTOCOL)
    failed = CounterMetricFamily(
        "stele_tls_handshakes_failed",
        "TLS handshakes that failed, by reason.",
        labels=("protocol", "reason"),
    )
    expires = GaugeMetricFamily(
        "stele_tls_certificate_expiry_timestamp_seconds",
        "Unix time at which the certificate of a listener expires.",
        labels=_PROTOCOL,
    )
    reloads = CounterMetricFamily(
        "stele_tls_reloads", "Reloads of the TLS files of a listener.", labels=_PROTOCOL
    )
    reload_failures = CounterMetricFamily(
        "stele_tls_reload_failures", "Reloads that failed; the old certificate is kept.", labels=_PROTOCOL
    )
    is_stale = GaugeMetricFamily(
        "stele_tls_reload_failed",
        "1 if the TLS files could not be used when they were read last, otherwise 0.",
        labels=_PROTOCOL,
    )
    for listener in listeners:
        status = listener.tls_status()
        if status is None:
            continue
        traffic = listener.traffic()
        pending.add_metric((listener.name,), traffic.handshakes_pending)
        completed.add_metric((listener.name,), traffic.handshakes)
        for reason, number in traffic.handshakes_failed.items():
            failed.add_metric((listener.name, reason), number)
        expires.add_metric((listener.name,), status.certificate_expires_s)
        reloads.add_metric((listener.name,), status.reloads)
        reload_failures.add_metric((listener.name,), status.reload_failures)
        is_stale.add_metric((listener.name,), int(status.has_reload_failed))
    return (pending, completed, failed, expires, reloads, reload_failures, is_stale)
