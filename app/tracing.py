"""Traces with OpenTelemetry, for who has a collector: the extra ``otel``, and the standard's own ``OTEL_…`` variables.

Nothing here is imported by a broker that does not export traces.
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
# What is left at the end is sent for this long, in all: there may be many requests of it, and each may hang.
CLOSE_S = 2.0
# Asked for all the time, and of no interest in a trace. Whole addresses, with the name of the host before the path.
_LEFT_OUT = r"^\w+://[^/]*/(?:healthz|readyz|metrics)$,^\w+://[^/]*/console/static/"


class TracesMissingError(Exception):
    """Traces were asked for, and the packages are not there."""

    def __init__(self) -> None:
        super().__init__(
            "otel_enable needs packages that are not installed: pip install 'stele-broker[otel]'"
        )


class Traces:
    """An exporter that sends spans in the background, and drops them rather than hold anybody up."""

    def __init__(self, provider: TracerProvider, instrumentor: type[FastAPIInstrumentor]) -> None:
        self._provider = provider
        self._instrumentor = instrumentor

    def tracer(self) -> Tracer:
        return self._provider.get_tracer(_NAME)

    def instrument(self, app: FastAPI) -> None:
        """A span for each HTTP request, within the trace that its ``traceparent`` names."""
        self._instrumentor.instrument_app(
            app,
            tracer_provider=self._provider,
            excluded_urls=_LEFT_OUT,
            exclude_spans=["receive", "send"],
        )

    def close(self) -> None:
        """Send what there is, for ``CLOSE_S`` at most; blocks."""
        ending = threading.Thread(target=self._provider.shutdown, name="stele-traces", daemon=True)
        ending.start()
        ending.join(CLOSE_S)
        if ending.is_alive():
            logger.warning("the collector did not take all spans within %g s: the rest is lost", CLOSE_S)


def start_traces() -> Traces:
    """Begin to export. Raises ``TracesMissingError``."""
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
    # The end of the process must not wait again for what ``close`` has given up.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Traces(provider, FastAPIInstrumentor)
