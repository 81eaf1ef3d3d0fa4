"""Run the server of the registry's listener."""

from __future__ import annotations

from starlette.types import ASGIApp

from ...network.accept_loop import AcceptOptions
from ...network.admission import Admission
from ...registry.service import SchemaRegistry
from ...security.policy import ListenerSecurity
from ...security.tls.listener_tls import ListenerTls
from ...tracing import Traces
from ..authentication import Authenticate
from ..http.cross_site import RefuseCrossSite
from ..http.request_ids import RequestIds
from ..http.traffic import refuse
from ..server import HttpListener, HttpServer
from .application import create_registry_application, mount_registry
from .errors import encode_error, registry_errors


class RegistryServer(HttpListener):
    """The listener of the schema registry; it shares state, counters and routes with the HTTP listener."""

    def __init__(
        self,
        registry: SchemaRegistry,
        http: HttpServer,
        *,
        admission: Admission,
        accept: AcceptOptions,
        tls: ListenerTls | None = None,
        security: ListenerSecurity | None = None,
        traces: Traces | None = None,
    ) -> None:
        mount_registry(http.application, registry)
        state, traffic = http.application.state, http.registry_traffic
        settings = state.stele.settings
        application = create_registry_application(
            registry, state.stele, state.request_counts, traffic, security
        )
        if traces is not None:
            traces.instrument(application)
        authenticated: ASGIApp = application
        if security is not None:
            authenticated = authenticate = Authenticate(application, security, None)
            if security.credentials is not None:
                security.credentials.observe_revocations(authenticate.revoke)
        super().__init__(
            registry_errors(RequestIds(RefuseCrossSite(authenticated, settings))),
            traffic,
            settings,
            admission=admission,
            accept=accept,
            tls=tls,
            security=security,
            refusing=registry_errors(refuse),
            problem_encoder=encode_error,
        )
