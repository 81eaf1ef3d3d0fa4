"""TLS of the transports: contexts, and errors that say what to do."""

from __future__ import annotations

import ssl

from ..config import Endpoint
from ..errors import BrokerUnavailableError

# What OpenSSL reports when the other side answers in plaintext.
_PLAINTEXT_REASONS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
)


def client_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Return the context for ``endpoint``; None without TLS.

    Raises:
        ValueError: a file cannot be used.
    """
    files = endpoint.tls
    if files is None:
        return None
    try:
        context = ssl.create_default_context(cafile=files.ca_file)
    except OSError as error:
        raise ValueError(f"ca_file {files.ca_file} cannot be used: {_words_of(error)}") from error
    # A certificate of ca_file is trusted even if it is not that of a CA, but of one broker.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if files.certificate_file is not None:
        try:
            context.load_cert_chain(files.certificate_file, files.key_file)
        except OSError as error:
            key_file = files.key_file or files.certificate_file
            raise ValueError(
                f"certificate_file {files.certificate_file} and key_file {key_file} cannot be used: {_words_of(error)}"
            ) from error
    return context


def refused(endpoint: Endpoint, error: ssl.SSLError) -> BrokerUnavailableError:
    """Return the error for a handshake that failed; another attempt would fail as well."""
    where = f"{endpoint.host}:{endpoint.port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return BrokerUnavailableError(
            f"the certificate of {where} is not trusted: {error.verify_message}; "
            "name its CA with ca_file (STELE_CA_FILE)"
        )
    if error.reason in _PLAINTEXT_REASONS:
        return BrokerUnavailableError(
            f"{where} does not speak TLS; write stele:// or http:// in the URL, or use another port"
        )
    if is_about_own_certificate(error):
        return BrokerUnavailableError(
            f"{where} refused the certificate of this client: {_words_of(error)}; "
            "give certificate_file and key_file (STELE_CERTIFICATE_FILE, STELE_KEY_FILE) that its client CAs issued"
        )
    return BrokerUnavailableError(f"TLS with {where} failed: {_words_of(error)}")


def is_about_own_certificate(error: BaseException | None) -> bool:
    """Return True for the alert of a broker that refuses the client.

    With TLS 1.3, it may follow the handshake.
    """
    reason = error.reason or "" if isinstance(error, ssl.SSLError) else ""
    return "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _words_of(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return error.strerror or str(error)
