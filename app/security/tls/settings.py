"""Turn the settings into the TLS of one listener."""

from __future__ import annotations

from ...settings import ListenerName, Settings
from .listener_tls import InvalidTlsFiles, ListenerTls, TlsOptions
from .peer_tls import PeerTls, PeerTlsOptions
from .principal_mapping import InvalidMappingRules, PrincipalMapping


def listener_tls(settings: Settings, listener: ListenerName) -> ListenerTls | None:
    """Load the TLS of ``listener``; None if it has none.

    Raises:
        InvalidTlsFiles: a file cannot be used, or the settings contradict each other.
    """
    own = settings.listener(listener)
    certificate_file = own.tls_certificate_file or settings.tls_certificate_file
    key_file = own.tls_key_file or settings.tls_key_file
    if own.tls_enable is False or (own.tls_enable is None and certificate_file is None and key_file is None):
        return None
    if certificate_file is None or key_file is None:
        missing = "tls_certificate_file" if certificate_file is None else "tls_key_file"
        raise InvalidTlsFiles(f"{listener}: TLS needs a certificate and its key; set {missing}")
    try:
        mapping = PrincipalMapping(settings.tls_principal_mapping_rules)
    except InvalidMappingRules as error:
        raise InvalidTlsFiles(str(error)) from error
    options = TlsOptions(
        certificate_file=certificate_file,
        key_file=key_file,
        client_ca_file=own.tls_client_ca_file or settings.tls_client_ca_file,
        client_auth=own.tls_client_auth or settings.tls_client_auth,
        mapping=mapping,
    )
    try:
        return ListenerTls(options)
    except InvalidTlsFiles as error:
        raise InvalidTlsFiles(f"{listener}: {error}") from error


def peer_tls(settings: Settings, http: ListenerTls | None) -> PeerTls | None:
    """Load the TLS for requests to other brokers.

    None for a broker on its own, or if the HTTP listener has no TLS.

    Raises:
        InvalidTlsFiles: a file cannot be used, or the settings contradict each other.
    """
    given = {
        "ca_file": settings.cluster_tls_ca_file,
        "certificate_file": settings.cluster_tls_certificate_file,
        "key_file": settings.cluster_tls_key_file,
    }
    wanted = [f"cluster_tls_{name}" for name, file in given.items() if file is not None]
    if http is None or settings.storage != "shared":
        if wanted:
            reason = "the HTTP listener has no TLS" if http is None else "storage is not shared"
            raise InvalidTlsFiles(f"{wanted[0]} has no use, because {reason}")
        return None
    if (given["certificate_file"] is None) != (given["key_file"] is None):
        missing = "certificate_file" if given["certificate_file"] is None else "key_file"
        raise InvalidTlsFiles(
            f"brokers: a certificate and its key belong together; set cluster_tls_{missing}"
        )
    try:
        return PeerTls(PeerTlsOptions(listener=http.options, **given))
    except InvalidTlsFiles as error:
        raise InvalidTlsFiles(f"brokers: {error}") from error
