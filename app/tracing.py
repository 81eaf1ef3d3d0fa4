"""Export traces with OpenTelemetry; needs the extra ``otel``.

The standard ``OTEL_…`` variables configure the exporter. A broker that does not export
traces imports none of its packages.
"""

from __future__ import annotations

import logging
import os
import threading
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

logger = logging.getLogger(__name__)

_NAME = "stele"
# Limit of the final export in total; it may take several requests, each of which may hang.
CLOSE_S = 2.0
# Paths that are requested too often to be traced. The patterns match whole URLs.
_LEFT_OUT = r"^\w+://[^/]*/(?:healthz|readyz|metrics)$,^\w+://[^/]*/console/static/"


class TracesMissingError(Exception):
    """``otel_enable`` is set, but packages of the extra ``otel`` are missing."""

    def __init__(self) -> None:
        super().__init__(
            "otel_enable needs packages that are not installed; run pip install 'stele-broker[otel]'"
        )


class Traces:
    """Sends spans in the background, and drops them instead of delaying requests."""

    def __init__(self, provider: TracerProvider, instrumentor: type[FastAPIInstrumentor]) -> None:
        self._provider = provider
        self._instrumentor = instrumentor

    def tracer(self) -> Tracer:
        """Return the tracer for spans outside of HTTP."""
        return self._provider.get_tracer(_NAME)

    def instrument(self, app: FastAPI) -> None:
        """Record a span per HTTP request, in the trace that its ``traceparent`` names."""
        self._instrumentor.instrument_app(
            app,
            tracer_provider=self._provider,
            excluded_urls=_LEFT_OUT,
            exclude_spans=["receive", "send"],
        )

    def close(self) -> None:
        """Send the remaining spans, for at most ``CLOSE_S``; blocks."""
        ending = threading.Thread(target=self._provider.shutdown, name="stele-traces", daemon=True)
        ending.start()
        ending.join(CLOSE_S)
        if ending.is_alive():
            logger.warning(
                "the collector did not take all spans within %g s; the remaining ones are dropped", CLOSE_S
            )


def start_traces() -> Traces:
    """Start the exporter. Raises ``TracesMissingError``."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise TracesMissingError from error
    try:
        release = version("stele-broker")
    except PackageNotFoundError:
        release = "unknown"
    resource = Resource.create(
        {"service.name": os.environ.get("OTEL_SERVICE_NAME", _NAME), "service.version": release}
    )
    # ``close`` already waits; the exit of the process must not wait again.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider, FastAPIInstrumentor)
